"""Measures recovery: how often a model answers correctly after a failed first call.

The failed calls are the same for every method and step: names that have changed, and the mistakes of the environment's
demonstrations. Each is prefilled as the first turn and really runs; the model has one call and an answer left. Repair
is off, and no other evaluation uses these tasks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.lab.environments import ToyEnvironment
from benchmarks.lab.served import rolled
from benchmarks.toy.library import OPERATIONS
from benchmarks.toy.mistakes import Kind, Program, call, malformed
from benchmarks.toy.questions import Question
from benchmarks.toy.regimes import Regime
from cleaner_rl.tasks import Task
from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory import TokenSpan, Trajectory

OUTDATED = 0.5
"""How often a first call fails because of a changed name, where the question has one."""


def failed_first(task: Task, regime: Regime) -> str:
    """Return a first turn that fails, as the environment's demonstrations could contain it."""
    question = question_of(task)
    if regime.one_by_one:
        question = replace(question, stems=question.stems[:1])
    draw = random.Random(derive_seed(0, "failed first", task.id))
    known, current = regime.known, regime.names(question.numbers)
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
    """Return the question of a task."""
    numbers, stems = task.extra["numbers"], task.extra["stems"]
    assert isinstance(numbers, list)
    assert isinstance(stems, list)
    return Question(tuple(numbers), tuple(stems), bool(task.extra["stepwise"]))


def plan(question: Question) -> str:
    """Return the sentence before a call."""
    return ", ".join(OPERATIONS[stem].words for stem in question.stems).capitalize() + "."


def recovery(model: Path, environment: ToyEnvironment) -> dict[str, float]:
    """Measure a model after the failed first calls of its environment."""
    regime = environment.regime
    return counted(
        rolled(
            model,
            environment,
            environment.failed_first(),
            regime.calls + 1,
            "recovery",
            lambda task: failed_first(task, regime),
        )
    )


def counted(trajectories: Sequence[Trajectory[TokenSpan]]) -> dict[str, float]:
    """Count shares over the rollouts that began with a failure."""
    rows = [each for each in trajectories if each.usable and each.success is not None and each.turns[0].failed]
    count = max(1, len(rows))
    return {
        "rollouts": len(rows),
        "right": sum(bool(each.success) for each in rows) / count,
        "next_call_works": sum(len(each.turns) > 1 and each.turns[1].verified for each in rows) / count,
    }
