"""All checks in turn. Each is loaded when its turn comes, so that the first results are there at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cleaner_rl.doctor import machine, stack
from cleaner_rl.doctor.check import Check
from cleaner_rl.tasks import Prompt, load_prompt


def diagnose(
    models: Sequence[str] = (),
    *,
    prompt: str = "stateless",
    sandboxes: Sequence[str] = (),
    sandbox_token: str | None = None,
    ray_address: str | None = None,
) -> Iterator[Check]:
    """Check what this machine can do, one thing after the other.

    Args:
        models: Folders, hub names, or addresses of servers to check too.
        prompt: Name or TOML file of the prompt that the models' chat templates have to fit.
        sandboxes: Addresses of sandbox nodes to check too.
        sandbox_token: What those nodes ask for, if they do.
        ray_address: Address of a Ray cluster; None: Ray's own choice.

    Raises:
        LookupError: There is no prompt of this name.
        ValueError: The prompt's file can't be used.

    Examples:
        >>> from cleaner_rl.doctor import State, diagnose
        >>> [check.name for check in diagnose() if check.state is State.WRONG]
        []
    """
    asked = load_prompt(prompt)
    return _checks(models, asked, sandboxes, sandbox_token, ray_address)


def _checks(
    models: Sequence[str], prompt: Prompt, sandboxes: Sequence[str], token: str | None, ray_address: str | None
) -> Iterator[Check]:
    from cleaner_rl.doctor.model import model
    from cleaner_rl.doctor.sandbox import isolation, node_at, node_here

    yield machine.system()
    yield machine.memory()
    yield machine.disk()
    yield isolation()
    yield node_here()
    yield from (node_at(url, token) for url in sandboxes)
    yield from stack.extras()
    yield from stack.engines()
    yield stack.ray(ray_address)
    yield from (model(named, prompt) for named in models)
