"""Recovery skill: failed first calls, the same for every arm and step, and how often a model answers rightly then.

The failures are the regime's own: names that have changed since, and the mistakes that its teacher makes, written by
seed and task. Each is put into the model's mouth and really runs; the model has one call and an answer left. Repair is
off, and these tasks are in no other evaluation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab.served import rolled
from benchmarks.lab.worlds import World
from benchmarks.taught.library import OPERATIONS
from benchmarks.taught.mistakes import Kind, Program, call, malformed
from benchmarks.taught.questions import Question
from benchmarks.taught.regimes import Regime
from cleaner_rl.tasks import Task
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import TokenSpan, Trajectory

OUTDATED = 0.5
"""How often a first call fails because of a changed name, where the question has one."""


def failed_first(task: Task, regime: Regime) -> str:
    """A first turn that fails, as the regime's teacher could have written it."""
    question = question_of(task)
    draw = random.Random(derive_seed(0, "failed first", task.id))
    known, current = regime.known, regime.current
    outdated = any(known[stem] != current[stem] for stem in question.stems)
    if outdated and draw.random() < OUTDATED:
        return f"{plan(question)}\n{call(Program(question, known).right())}"
    program = Program(question, current)
    possible = [kind for kind in program.kinds() if kind in regime.kinds]
    kind = draw.choices(possible, [regime.kinds[each] for each in possible])[0]
    if kind is Kind.MALFORMED:
        return f"{plan(question)}\n{malformed(program.right(), draw)}"
    return f"{plan(question)}\n{call(program.wrong(kind, draw, regime.far))}"


def question_of(task: Task) -> Question:
    """The question that a task was made of."""
    numbers, stems = task.extra["numbers"], task.extra["stems"]
    assert isinstance(numbers, list)
    assert isinstance(stems, list)
    return Question(tuple(numbers), tuple(stems), bool(task.extra["stepwise"]))


def plan(question: Question) -> str:
    """The sentence before a call."""
    return ", ".join(OPERATIONS[stem].words for stem in question.stems).capitalize() + "."


def recovery(model: Path, world: World) -> dict[str, float]:
    """How a model does after the failures of its world."""
    regime = world.regime
    return counted(
        rolled(
            model, world, world.failed_first(), regime.calls + 1, "recovery", lambda task: failed_first(task, regime)
        )
    )


def counted(trajectories: Sequence[Trajectory[TokenSpan]]) -> dict[str, float]:
    """Shares of the rollouts that did begin with a failure."""
    rows = [each for each in trajectories if each.usable and each.success is not None and each.turns[0].failed]
    count = max(1, len(rows))
    return {
        "rollouts": len(rows),
        "right": sum(bool(each.success) for each in rows) / count,
        "next_call_works": sum(len(each.turns) > 1 and each.turns[1].verified for each in rows) / count,
    }
