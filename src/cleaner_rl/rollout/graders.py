"""The graders that come with the package, a sandbox behind the one that runs programs; those of others; and yours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cleaner_rl.rollout.rewards import TERMS, load_function
from cleaner_rl.rollout.sandbox_results import tool_result
from cleaner_rl.rollout.tool_env import Sandbox
from cleaner_rl.tasks import GRADERS, AnyGrader, ChoiceGrader, CodeGrader, CodeRun, MathGrader, MathPool, StateGrader
from cleaner_rl.tools import ToolResult
from cleaner_sandbox.protocol import Limits, RunRequest

MEMORY_MB = 2048
"""That a program may hold while it is graded: more than a tool call, because contests allow about as much."""


class Graders(Mapping[str, AnyGrader]):
    """By the names that tasks and weights call them, `FILE.py:FUNCTION` too. A plug-in is loaded by the first task that
    needs it: a broken one harms no other."""

    def __init__(self, ours: Mapping[str, AnyGrader]) -> None:
        self._made = dict(ours)

    def __getitem__(self, name: str) -> AnyGrader:
        if name not in self._made:
            if ":" in name:
                self._made[name] = load_function(name)
            elif name not in GRADERS.others():
                raise KeyError(name)
            else:
                self._made[name] = GRADERS.load(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._made, *GRADERS.others()}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def standard_graders(sandbox: Sandbox, pool: MathPool | None, more: Mapping[str, AnyGrader] | None = None) -> Graders:
    """Return our graders, those of other installed packages, and `more` of your own; `math` needs a pool."""

    async def execute(run: CodeRun) -> ToolResult:
        return tool_result((await sandbox.run(_request(run))).result)

    ours: dict[str, AnyGrader] = {
        **TERMS,
        "choice": ChoiceGrader(),
        "code": CodeGrader(execute),
        "state": StateGrader(),
    }
    if pool is not None:
        ours["math"] = MathGrader(pool)
    return Graders({**ours, **(more or {})})


def _request(run: CodeRun) -> RunRequest:
    limits = Limits(run.seconds, run.wall_seconds, memory_mb=MEMORY_MB, output_bytes=run.output_bytes)
    return RunRequest(run.program, stdin=run.stdin, limits=limits, keep_chars=run.output_bytes, keep_displays=False)
