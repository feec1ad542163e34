"""Programs, graded on a real node."""

from __future__ import annotations

from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.sandbox import BARE, Node, NodeConfig
from cleaner_rl.tasks import Case, MathPool, Outcome
from tests.sandbox.serving import asynchronous
from tests.tasks.builders import code_task, fenced

LINES = 200_000


@asynchronous
async def test_a_right_output_is_right_however_long_it_is() -> None:
    wanted = "\n".join(map(str, range(LINES)))
    problem = code_task(Case(str(LINES), wanted))
    async with Node(NodeConfig(slots=1, preload=(BARE,))) as node:
        grader = standard_graders(node, MathPool())["code"]
        right = await grader.grade(problem, fenced("print(*range(int(input())), sep='\\n')"))
        wrong = await grader.grade(problem, fenced("print(*range(int(input()) - 1), sep='\\n')"))
        longer = await grader.grade(code_task(Case("", wanted[:65_536])), fenced(f"print(*range({LINES}), sep='\\n')"))
    assert [right.outcome, wrong.outcome, longer.outcome] == [Outcome.RIGHT, Outcome.WRONG, Outcome.WRONG]
