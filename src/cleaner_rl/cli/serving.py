"""What the commands that run a model have in common: a sandbox of their own or somebody's, and errors in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import click

from cleaner_rl.cli.words import said
from cleaner_rl.rollout import ChatError, EngineFaultError
from cleaner_rl.rollout.toolbox import Sandbox
from cleaner_rl.sandbox import Node, NodeConfig, TierError, ZygoteError
from cleaner_rl.sandbox.client import RequestRefusedError, SandboxClient
from cleaner_rl.tasks import DatasetError
from cleaner_rl.trajectory.store.files import BusyError

EXPECTED = (
    BusyError,
    ChatError,
    DatasetError,
    EngineFaultError,
    ImportError,
    LookupError,
    OSError,
    RequestRefusedError,
    ValueError,
)
"""What can go wrong outside of the program; each says what to do."""


@asynccontextmanager
async def open_sandbox(
    urls: Sequence[str], *, token: str | None, patience: float, slots: int | None, sessions: int
) -> AsyncIterator[Sandbox]:
    """The nodes behind these addresses, or one that is started here."""
    if urls:
        async with SandboxClient(urls, token=token, patience=patience) as client:
            yield client
        return
    usual = NodeConfig()
    config = replace(usual, slots=slots or usual.slots, sessions=max(usual.sessions, sessions))
    async with AsyncExitStack() as stack:
        try:
            node = await stack.enter_async_context(Node(config))
        except (TierError, ZygoteError) as error:
            raise click.ClickException(
                f"no sandbox starts here: {error}; `cleaner doctor` says why, --sandbox names one elsewhere"
            ) from None
        yield node


@contextmanager
def explained() -> Iterator[None]:
    """Say what went wrong in one line; a bug keeps its traceback."""
    try:
        yield
    except EXPECTED as error:
        raise click.ClickException(said(error)) from None
    except ExceptionGroup as group:
        expected, others = group.split(EXPECTED)
        if expected is None or others is not None:
            raise
        raise click.ClickException(said(_first(expected))) from None


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
