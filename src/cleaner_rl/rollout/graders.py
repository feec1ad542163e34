"""The graders that come with the package, with the sandbox behind the one that runs programs; and those of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cleaner_rl.rollout.sandbox_results import tool_result
from cleaner_rl.rollout.tool_env import Sandbox
from cleaner_rl.tasks import GRADERS, ChoiceGrader, CodeGrader, CodeRun, Grader, MathGrader, MathPool, StateGrader
from cleaner_rl.tools import ToolResult
from cleaner_sandbox.protocol import Limits, RunRequest

MEMORY_MB = 2048
"""That a program may hold while it is graded: more than a tool call, because contests allow about as much."""


class Graders(Mapping[str, Grader]):
    """By the names that tasks call them. A plug-in is loaded by the first task that needs it: a broken one harms no
    other."""

    def __init__(self, ours: Mapping[str, Grader]) -> None:
        self._made = dict(ours)

    def __getitem__(self, name: str) -> Grader:
        if name not in self._made:
            if name not in GRADERS.others():
                raise KeyError(name)
            self._made[name] = GRADERS.load(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._made, *GRADERS.others()}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def standard_graders(sandbox: Sandbox, pool: MathPool) -> Graders:
    """Return our graders and those of other installed packages."""

    async def execute(run: CodeRun) -> ToolResult:
        return tool_result((await sandbox.run(_request(run))).result)

    ours: dict[str, Grader] = {
        "math": MathGrader(pool),
        "choice": ChoiceGrader(),
        "code": CodeGrader(execute),
        "state": StateGrader(),
    }
    return Graders(ours)


def _request(run: CodeRun) -> RunRequest:
    limits = Limits(run.seconds, run.wall_seconds, memory_mb=MEMORY_MB, output_bytes=run.output_bytes)
    return RunRequest(run.program, stdin=run.stdin, limits=limits, keep_chars=run.output_bytes, keep_displays=False)
