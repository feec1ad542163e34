"""The environment in which the calls of a prompt's tool run: ours for Python and bash, or another package's.

A prompt says `kind = "stateless"` or `kind = "session"` for Python in the sandbox, and `kind = "shell"` for bash. Any
other kind is a plug-in, made with the prompt's `[tool.options]`. Other packages add theirs with an entry point in the
group `cleaner_rl.tools`: a class with the methods of `ToolEnv`.

A plug-in that raises must not end a rollout with a traceback, and must not count as the model's failure: it is
guarded, and what it raises is a fault. A tool that has raised is in a state that nobody knows, so from then on every
call of that rollout is a fault, and the rollout is tried again in a fresh environment. The first traceback goes to the
log, for the tool's author; the others are in the trajectories, in a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from cleaner_rl.rollout.tool_env import Sandbox, SessionToolEnv, StatelessToolEnv, ToolEnv, ToolSession
from cleaner_rl.tasks import Prompt, ToolKind
from cleaner_rl.tools import Plugins, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import Key
from cleaner_sandbox.protocol import Language, Limits, SessionRequest

TOOLS: Plugins[ToolEnv] = Plugins(
    group="cleaner_rl.tools",
    what="tool",
    ours={
        ToolKind.STATELESS: "cleaner_rl.rollout.tool_env:StatelessToolEnv",
        ToolKind.SESSION: "cleaner_rl.rollout.tool_env:SessionToolEnv",
        ToolKind.SHELL: "cleaner_rl.rollout.tool_env:SessionToolEnv",
        "sql": "cleaner_rl.rollout.sql:SqlTool",
    },
    needs=("stateful", "limits", "open"),
)
_log = logging.getLogger(__name__)


def tool_env_of(prompt: Prompt, sandbox: Sandbox, request: SessionRequest = SessionRequest()) -> ToolEnv:  # noqa: B008 - frozen
    """Return the environment that runs the calls of the prompt's tool; sandbox and limits are for Python and bash."""
    if prompt.tool_kind == ToolKind.SESSION:
        return SessionToolEnv(sandbox, request)
    if prompt.tool_kind == ToolKind.SHELL:
        return SessionToolEnv(sandbox, replace(request, language=Language.BASH))
    if prompt.tool_kind == ToolKind.STATELESS:
        return StatelessToolEnv(sandbox, request.limits)
    return GuardedToolEnv(TOOLS.load(prompt.tool_kind, **prompt.tool_options), prompt.tool_kind)


class GuardedToolEnv:
    """A tool environment whose sessions only ever answer."""

    def __init__(self, tool: ToolEnv, name: str) -> None:
        self._tool, self._name = tool, name
        self._told = False

    @property
    def stateful(self) -> bool:
        """Whether a call can see what an earlier one left."""
        return self._tool.stateful

    @property
    def limits(self) -> Limits | None:
        """What a call may use, where it isn't the sandbox's default."""
        return self._tool.limits

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[ToolSession]:
        """The tools of one rollout, and what broke them, if anything did."""
        tool_session = GuardedToolSession(self)
        with tool_session.faults():
            opened = self._tool.open(key)
            tool_session.tool = await opened.__aenter__()
        try:
            yield tool_session
        finally:
            if tool_session.tool is not None:
                with tool_session.faults():
                    await opened.__aexit__(*sys.exc_info())

    def tell(self, error: Exception) -> str:
        """What is said of a tool that raised."""
        if not self._told:
            _log.error(
                "the tool %s raised; its calls count as infrastructure faults, not as failures of the model",
                self._name,
                exc_info=error,
            )
            self._told = True
        return f"The tool {self._name} raised {type(error).__name__}: {error}"


class GuardedToolSession:
    """Runs the calls of one rollout, and turns whatever its tool raises into faults."""

    def __init__(self, tool_env: GuardedToolEnv) -> None:
        self._tool_env = tool_env
        self.tool: ToolSession | None = None
        self._broken = ""

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of a turn's calls, in their order."""
        if self.tool is not None and not self._broken:
            with self.faults():
                return await self.tool.run(calls)
        return [ToolResult(Status.FAULT, explanation=self._broken) for _ in calls]

    async def rollback(self) -> None:
        """Go back to before the last `run`."""
        if self.tool is not None and not self._broken:
            with self.faults():
                await self.tool.rollback()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Note what is raised, and go on."""
        try:
            yield
        except Exception as error:  # whatever another package's code may raise
            self._broken = self._tool_env.tell(error)
