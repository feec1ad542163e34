"""Whether a sandbox that somebody named is there at all, before much is asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from cleaner_rl.purify import ReplayFaultError
from cleaner_rl.sandbox.client import RequestRefusedError, SandboxClient

SECONDS = 10.0


class NoSandboxError(ReplayFaultError):
    """Nobody runs a program at these addresses."""


async def must_answer(client: SandboxClient, nodes: Sequence[str]) -> None:
    """Run an empty program. A client is patient with nodes that are away; a person with a wrong address is not."""
    where = ", ".join(nodes)
    try:
        result = (await client.run("", within=SECONDS)).result
    except RequestRefusedError as error:
        raise NoSandboxError(f"the sandbox at {where} refuses: {error}; give --sandbox-token if it wants one") from None
    if result.faulty:
        raise NoSandboxError(f"no sandbox answers at {where}: start one (`cleaner sandbox serve`), or mend --sandbox")
