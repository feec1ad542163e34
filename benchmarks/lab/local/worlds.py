"""The worlds that methods are compared in: each has its own tasks, its own changed names, and one of two cold starts.

Test tasks combine operations as no training task of the world does. Cold starts know no world: they are made once per
environment, and worlds take them in turn. They are kept with the results, because a cold start that another processor
makes is not bitwise the same.

*Development* worlds are for everything that is chosen. *Fresh* worlds are run once, after the plan is committed, and so
are *preregistered* ones, after the second plan: these have fresh models, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from benchmarks.lab.environments import DRIFT, REAL
from benchmarks.models import save
from benchmarks.toy import library
from benchmarks.toy.folder import AGENT, cache_folder, made, place
from benchmarks.toy.model import SMOLLM2, Lessons
from benchmarks.toy.questions import TEST, TRAIN, Question, is_held_out, questions, task
from benchmarks.toy.regimes import REGIMES, Regime
from cleaner_rl.tasks import Task, write_verl

ENVIRONMENTS = ("drift", "drift-guess", "starved", "slips", "per-task", "one-by-one")
DEVELOPMENT = (1, 2, 3, 4)
EQUAL_COMPUTE = (3, 2)
"""The two of them in which methods are compared at equal compute: nothing was tuned in the first."""
TUNING = 2
"""The one of them in which learning rates and the form of the two views are chosen."""
FRESH = tuple(range(101, 111))
FRESH_COMPARED = FRESH[:5]
"""The worlds that all compared methods run in; in the others only those run that the margins need."""
FRESH_OTHERS = FRESH[:3]
"""The worlds that more methods run in."""
FRESH_REAL = FRESH[:2]
"""The worlds of a real language model, whose steps take a hundred times as long."""
PREREGISTERED = tuple(range(201, 217))
"""Worlds of the second plan (`preregistered`), run once: of fresh models too, each of two worlds."""
WORLDS_OF_A_MODEL = 2
COLD_STARTS = 2
SEEDS = {"drift-guess": (0, 2)}
"""Of cold starts that aren't made with 0 and 1. Here the one with seed 1 answers 2 % of its tasks, and never learns."""
LESSONS = Lessons(demonstrations=4_000, epochs=4, batch=8, lr=2e-3, width=64, layers=3, heads=4, apart=True)
"""A smaller model than that of the lab on verl: 0.2M parameters."""
FRESH_MODELS = tuple(
    replace(LESSONS, width=width, layers=layers, seed=seed)
    for seed, (width, layers) in enumerate([(64, 3), (48, 3), (96, 3), (64, 2)] * 2, 11)
)
"""Eight models of four sizes. Every one counts, also one that learns little."""
TAUGHT_BY = {"per-task": "drift"}
"""Environments whose cold start is another's."""
FORMAT = 1
"""Raised when the same world has another folder's contents."""
KEPT = Path(__file__).parents[2] / "data" / "cold_starts"
"""Models of cold starts, in bfloat16, by the name of the folder that they were made in."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run in a world."""

    steps: int = 20
    evaluate_every: int = 5
    save_every: int = 10
    tasks: int = 2_048
    """That are trained on."""
    tested: int = 1_000
    """Tasks of the test at the end."""
    curve: int = 128
    """Tasks of the evaluations on the way: the first of the test's."""
    failing: int = 256
    """Tasks of the recovery set."""
    frozen: int = 0
    """Layers, from the first on, that aren't trained; with any, neither are the embeddings."""
    halved: bool = False
    """Whether matrix products are in bfloat16 where the processor has units for them."""


TOY = Size()
PREREGISTERED_STEPS = {"drift": 60, "starved": 60, "slips": 40, "per-task": 20}
"""So many that the end is flat, as far as development runs show it."""
PER_TASK = Size(steps=10)
"""Where names differ from task to task: most is learnt early, and a step takes twice as long."""
SMOLLM = Size(
    steps=15,
    evaluate_every=5,
    save_every=5,
    tasks=512,
    tested=192,
    curve=64,
    failing=64,
    frozen=20,
    halved=True,
)


@dataclass(frozen=True, slots=True, order=True)
class World:
    """One world of an environment."""

    environment: str
    number: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.environment}-{self.number}"

    @property
    def size(self) -> Size:
        """How much is run in it."""
        if self.environment == REAL:
            return SMOLLM
        if self.number in PREREGISTERED:
            return replace(TOY, steps=PREREGISTERED_STEPS.get(self.environment, TOY.steps))
        return PER_TASK if self.regime.per_task else TOY

    @property
    def fresh_model(self) -> int | None:
        """The number of its fresh model, from 0 on; None for a world of one of the first cold starts."""
        return (self.number - PREREGISTERED[0]) // WORLDS_OF_A_MODEL if self.number in PREREGISTERED else None

    @property
    def regime(self) -> Regime:
        """The environment's settings in this world."""
        return replace(REGIMES[DRIFT if self.environment == REAL else self.environment], world=self.number)

    @property
    def folder(self) -> Path:
        """The folder that holds its library and its tasks, once it is made."""
        return (cache_folder().parent / "worlds" / f"{self.name}-{FORMAT}").absolute()

    @property
    def start(self) -> tuple[Regime, Lessons]:
        """What its cold start is taught."""
        if self.environment == REAL:
            return REGIMES[DRIFT], SMOLLM2
        taught = REGIMES[TAUGHT_BY.get(self.environment, self.environment)]
        if self.fresh_model is not None:
            return taught, FRESH_MODELS[self.fresh_model]
        seed = SEEDS.get(self.environment, range(COLD_STARTS))[self.number % COLD_STARTS]
        return taught, replace(LESSONS, seed=seed)

    @property
    def model(self) -> Path:
        """The folder of its cold start's model: the kept one, else the one that is made."""
        made_in = place(*self.start).absolute()
        kept = KEPT / made_in.name
        return kept if kept.exists() else made_in / "model"

    def make(self) -> None:
        """Make what doesn't exist yet; a cold start takes minutes and needs torch."""
        if not self.model.exists():
            made(*self.start)
        if not self.folder.exists():
            self._make()
        place, regime = self.folder / library.MODULE, self.regime
        if not place.exists():
            if regime.per_task:
                library.write_source(place, library.task_source(self.number))
            else:
                library.write(place, regime.current, hint=regime.hint)

    def _make(self) -> None:
        regime, part = self.regime, self.folder.with_name(f"{self.folder.name}.part{os.getpid()}")
        part.mkdir(parents=True)
        shutil.copy(regime.prompt_file, part / "prompt.toml")
        training = islice(self.questions(TRAIN), self.size.tasks)
        write_verl(part / "train.parquet", [task(each, self.name) for each in training], regime.prompt, AGENT)
        write_verl(part / "curve.parquet", self.tested()[: self.size.curve], regime.prompt, AGENT)
        try:
            part.rename(self.folder)
        except OSError:
            if not self.folder.exists():
                raise
            shutil.rmtree(part)  # another worker was quicker

    def tested(self) -> list[Task]:
        """The tasks of evaluations, in order."""
        return _asked(self)[: self.size.tested]

    def failing(self) -> list[Task]:
        """The tasks of the recovery set, which no evaluation has."""
        return _asked(self)[self.size.tested :]

    def questions(self, split: str) -> Iterator[Question]:
        """Its questions for training or for evaluations, without end."""
        regime = self.regime
        asked = questions(1_000 + self.number, split, changes=regime.changes, largest=regime.largest)
        return (each for each in asked if is_held_out(each, self.number) == (split == TEST))


@cache
def _asked(world: World) -> list[Task]:
    """The tasks of evaluations and those of the recovery set. Finding them takes seconds."""
    asked = islice(world.questions(TEST), world.size.tested + world.size.failing)
    return [task(each, world.name) for each in asked]


def keep(world: World) -> Path:
    """Keep the model of a world's cold start, and return its folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = KEPT / place(*world.start).name
    if not folder.exists():
        made_in = world.model
        save(
            AutoModelForCausalLM.from_pretrained(made_in, dtype=torch.bfloat16),
            AutoTokenizer.from_pretrained(made_in),
            folder,
        )
    return folder
