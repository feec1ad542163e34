"""The rollouts of `cleaner demo`: two problems, each with a program that fails and the model's own correction.

A script replaces the model. All around it is real: the loop, the repair, the tool, the grading.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from cleaner_rl.purify import Draft, PurifyConfig, RepairConfig, SampleRequest
from cleaner_rl.rollout.grading import grade_and_purify
from cleaner_rl.rollout.loop import rollout
from cleaner_rl.rollout.settings import Purifier
from cleaner_rl.rollout.tool_env import Sandbox, Session, StatelessToolEnv
from cleaner_rl.tasks import Grade, Message, Outcome, Prompt, Task, boxed, load_prompt
from cleaner_rl.tools import ToolSet, call_format
from cleaner_rl.trajectory import Key, Seeds, TextSpan, Trajectory, Turn, read_text
from cleaner_sandbox.protocol import RunException, RunOutcome, RunRequest, RunResult, RunStatus, SessionRequest

SECONDS = 10.0


def _program(thought: str, code: str) -> str:
    return f"{thought}\n```python\n{code}\n```"


_COUNT = """def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))

total = 0
for n in range(1, 1001):
    digits = sum(int(d) for d in str(n))
    if is_prime(digits):
        total += 1
print(total)"""
_PATHS = """from functools import cache

@cache
def paths(x, y):
    if y > x:
        return 0
    return paths(x - 1, y) + paths(x, y - 1)

print(paths(8, 8))"""
_QUESTION = "How many paths of unit steps right and up lead from (0, 0) to (8, 8) and never above the diagonal?"
_CATALAN = """from math import comb

n = 8
print(comb(2 * n, n) // (n + 1))"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A problem, and all that is said about it in order."""

    task: Task
    says: tuple[str, ...]


SCENES = (
    Scene(
        Task(
            "digit-sums",
            (Message("user", "How many integers from 1 to 1000 have a digit sum that is a prime number?"),),
            grader="number",
            truth="340",
        ),
        (
            _program("I go through all of them and test each digit sum.", _COUNT.replace("str(n)", "n")),
            _program("An integer can't be iterated over: I forgot to make it a string.", _COUNT),
            "The program counted 340 of them.\n\nThe answer is \\boxed{340}.",
        ),
    ),
    Scene(
        Task(
            "lattice-paths",
            (Message("user", _QUESTION),),
            grader="number",
            truth="1430",
        ),
        (
            _program("A path to (x, y) comes from the left or from below. I count them by recursion.", _PATHS),
            _program("It never ends. There is a closed form.", _CATALAN.removeprefix("from math import comb\n\n")),
            _program("These are the Catalan numbers, C(2n, n) / (n + 1) with n = 8.", _CATALAN),
            "The eighth Catalan number is 1430.\n\nThe answer is \\boxed{1430}.",
        ),
    ),
)


@dataclass
class ScriptedModel:
    """Says its lines in their order, whatever it is asked. A `Model` of text: there are no tokens to score."""

    says: Sequence[str]
    prompt: Prompt
    window: int = 1_000_000
    unit: int = 1
    _left: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self._left = iter(self.says)

    def begin(self, messages: Sequence[Message]) -> TextSpan:
        """The messages, as a person reads them."""
        return TextSpan("\n\n".join(f"{each.role}: {each.content}" for each in messages))

    async def sample(self, request: SampleRequest[TextSpan]) -> Draft[TextSpan]:  # noqa: ARG002 - it doesn't listen
        """The next line."""
        return self.written(next(self._left))

    def written(self, text: str) -> Draft[TextSpan]:
        """A line, read as any model's text is."""
        return Draft(read_text(text, call_format(self.prompt.call_format), ToolSet(self.prompt.tool)))

    def observe(self, turn: Turn[TextSpan], results: Sequence[str]) -> TextSpan:  # noqa: ARG002
        """What came back."""
        return TextSpan("\n".join(results))

    def answer(self, turn: Turn[TextSpan]) -> str:
        """What a grader reads."""
        return turn.text

    def gate(self, key: Key, max_logprob_gap: float | None) -> None:
        """Nothing is scored."""

    async def rescored(self, trajectory: Trajectory[TextSpan], max_logprob_gap: float | None) -> Trajectory[TextSpan]:  # noqa: ARG002
        """Nothing is scored."""
        return trajectory


class NumberGrader:
    """Right if the last box holds the very number."""

    async def grade(self, task: Task, text: str) -> Grade:
        """The grade of a final turn."""
        found = boxed(text)
        return Grade(Outcome.RIGHT if found == task.truth else Outcome.WRONG, found)


async def demo_rollouts(sandbox: Sandbox) -> AsyncIterator[Trajectory[TextSpan]]:
    """Roll out, repair and grade each of the demo's problems in this sandbox."""
    prompt, tool_env = load_prompt("fenced"), StatelessToolEnv(sandbox)
    purifier = Purifier(config=PurifyConfig(repair=RepairConfig(threshold=0.6)))
    graders = {"number": NumberGrader()}
    for scene in SCENES:
        task, model = scene.task, ScriptedModel(scene.says, prompt)
        key, seeds = Key("demo", 0, task.id, 0), Seeds(0, task.id, 0)
        rolled = await rollout(task, key, prompt=prompt, model=model, tool_env=tool_env, seeds=seeds, purifier=purifier)
        yield await grade_and_purify(
            rolled, task, model=model, tool_env=tool_env, graders=graders, seeds=seeds, purifier=purifier
        )


class PlainProcesses:
    """A stand-in for a sandbox that isolates nothing: for the demo's own programs, and for no others."""

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run a program in an interpreter of its own."""
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-c", request.code],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if not ran.returncode:
            return RunOutcome(RunResult(RunStatus.OK, ran.stdout))
        kind, _, message = ran.stderr.strip().splitlines()[-1].partition(": ")
        exception = RunException(kind, message, traceback=ran.stderr)
        return RunOutcome(RunResult(RunStatus.ERROR, ran.stdout, exception=exception))

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """Raise `NotImplementedError`: there are no sessions."""
        raise NotImplementedError
