"""Writes demonstrations: plan, call, the tool's real result, the corrected call, the answer.

Mistakes are made on purpose, at the regime's rates. Every call runs in the sandbox, and the demonstration holds its
result in the same words as a rollout. A call that ends otherwise than intended is an error here, so that a mistake
which stops being one is noticed.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.toy.library import FOLDS, MAPS, MODULE, OPERATIONS, SUFFIXES
from benchmarks.toy.mistakes import Kind, Program, call, kind_of, malformed
from benchmarks.toy.questions import CHANGES, Question, questions, task
from benchmarks.toy.regimes import Regime
from benchmarks.toy.sandboxes import toy_tool_envs
from cleaner_rl.rollout.tool_env import ToolEnv, ToolSession
from cleaner_rl.tasks import Message
from cleaner_rl.tools import Status, ToolSet, call_format, derive_seed, feedback
from cleaner_rl.trajectory import Key

PATIENCE = 4
"""Failures in a row after which no further mistake is made on purpose."""
SORRY = 0.3
"""How often the plan of a correction mentions the failure before it."""
AT_ONCE = 16
HINT = re.compile(rf"no {MODULE}\.(?P<stem>[a-z]+)_[a-z]+(?:; use [a-z]+_(?P<suffix>[a-z]+))?$")
"""What the library says of a name that it lacks."""
NO_HINT = re.compile(rf"module '{MODULE}' has no attribute '(?P<stem>[a-z]+)_(?P<suffix>[a-z]+)'")
"""What Python says of it, where the library says nothing."""
TRIES = 3
"""Of one demonstration, where the sandbox breaks under it, or stops a program that is meant to run."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A conversation to learn from."""

    question: Question
    turns: tuple[str, ...]
    """What the assistant says, in order; the last one answers."""
    results: tuple[str, ...]
    """What came back after each but the last."""

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Demonstration:
        """What `to_json` wrote."""
        asked = values["question"]
        question = Question(tuple(asked["numbers"]), tuple(asked["stems"]), asked["stepwise"])
        return cls(question, tuple(values["turns"]), tuple(values["results"]))

    def messages(self, regime: Regime) -> list[Message]:
        """As a chat, the prompt included."""
        said = [Message("assistant", turn) for turn in self.turns]
        heard = [Message("tool", result) for result in self.results]
        between = [message for pair in zip(said, heard, strict=False) for message in pair]
        return [*regime.prompt.messages(task(self.question, regime.name)), *between, said[-1]]


async def demonstrations(regime: Regime, count: int, seed: int, split: str, folder: Path) -> list[Demonstration]:
    """So many demonstrations over different questions of a split; sandboxed libraries are written below `folder`."""
    asked = questions(seed, split, changes=regime.changes, stepwise=regime.stepwise, largest=regime.largest)
    chosen = [next(asked) for _ in range(count)]
    libraries = [regime.known, *(regime.strangers() if regime.strange else [])]
    turns_free = asyncio.Semaphore(AT_ONCE)
    async with toy_tool_envs(folder, libraries, regime.tool, hint=regime.hint) as tool_envs:
        with click.progressbar(length=count, label=f"demonstrations of {regime.name}", file=sys.stderr) as bar:

            async def one(number: int, question: Question) -> Demonstration:
                for _ in range(TRIES):
                    draw = random.Random(derive_seed(seed, "demonstration", split, number))
                    strange = draw.random() < regime.strange
                    place = draw.randrange(1, len(libraries)) if strange else 0
                    async with turns_free:
                        made = await _Demonstrator(regime, question, libraries[place], draw).work(tool_envs[place])
                    if made is not None:
                        bar.update(1)
                        return made
                raise RuntimeError("the sandbox broke again and again; try on a machine with less to do")

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(number, each)) for number, each in enumerate(chosen)]
        return [each.result() for each in tasks]


class _Demonstrator:
    """Writes one demonstration."""

    def __init__(self, regime: Regime, question: Question, names: dict[str, str], draw: random.Random) -> None:
        self._regime, self._question, self._names, self._draw = regime, question, names, draw
        self._believed = regime.known
        self._tools = ToolSet(regime.prompt.tool)
        self._format = call_format(regime.prompt.call_format)
        self._turns: list[str] = []
        self._results: list[str] = []
        self._later: tuple[str, ...] = ()
        self._spoilt = ""
        self._advice = ""
        self._missing: set[tuple[str, str]] = set()

    async def work(self, tool_env: ToolEnv) -> Demonstration | None:
        """Work the question out; None if it has to be tried again."""
        printed: str | None = ""
        asked = self._question
        async with tool_env.open(Key("demonstration", 0, "", 0)) as tool_session:
            for cell, question, later in self._cells(asked):
                self._later = later
                # On the list that the call before printed, whatever it was asked to do.
                self._question = replace(question, numbers=_read(printed)) if printed and not cell else question
                printed = await self._cell(cell, tool_session)
                if printed is None:
                    return None
        self._turns.append(f"\\boxed{{{printed}}}")
        return Demonstration(asked, tuple(self._turns), tuple(self._results))

    def _cells(self, asked: Question) -> list[tuple[int, Question, tuple[str, ...]]]:
        """The calls that a question takes: the cell of its program, what it is asked, and what is asked afterwards."""
        if self._regime.one_by_one:
            stems = asked.stems
            return [(0, replace(asked, stems=(stem,)), stems[place + 1 :]) for place, stem in enumerate(stems)]
        return [(cell, asked, ()) for cell in range(1 + asked.stepwise)]

    async def _cell(self, cell: int, tool_session: ToolSession) -> str | None:
        """Try a cell until it runs; what it printed. None if the demonstration has to be tried again."""
        failed: Kind | None = None
        self._advice = ""
        for tried in range(PATIENCE + 2 * len(OPERATIONS)):
            question = self._misheard()
            program = Program(question, self._believed, cell, self._spoilt)
            kind = self._mistake(program, failed) if tried < PATIENCE else None
            spoilt = self._spoils(program) if kind is None else ""
            words = self._plan(cell, failed) + "\n" + self._call(program, kind, spoilt)
            (read,) = self._format.parse(words, self._tools).calls
            (result,) = await tool_session.run([read])
            # On a machine with much to do, a program that is right can run into the limit of CPU time.
            if result.faulty or (result.status is Status.TIMEOUT and kind is not Kind.TIMEOUT):
                return None
            self._turns.append(words)
            self._results.append(feedback(result))
            if not result.failed:
                # A name that is believed to be wrong can be right in a strange library.
                self._expect(kind is None or not self._believes_right(program), program, kind, result.output)
                self._expect(
                    question != self._question or not program.last or result.output == f"{question.printed}\n",
                    program,
                    kind,
                    result.output,
                )
                self._spoilt = spoilt
                return result.output.strip()
            failed = kind_of(result, cell > 0)
            if self._believes_right(program):
                self._expect(failed is kind, program, kind, feedback(result))
            self._learn(feedback(result))
        raise AssertionError(f"no try worked: {self._turns}")

    def _misheard(self) -> Question:
        """The question, or now and then one with another operation."""
        if self._draw.random() >= self._regime.silent:
            return self._question
        stems = list(self._question.stems)
        place = self._draw.randrange(len(stems))
        stems[place] = self._draw.choice(MAPS if stems[place] in CHANGES else FOLDS).stem
        other = replace(self._question, stems=tuple(stems))
        return self._question if replace(other, stems=other.stems + self._later).steps() is None else other

    def _mistake(self, program: Program, failed: Kind | None) -> Kind | None:
        rate = self._regime.first if failed is None else 1 - self._regime.mend[failed]
        if program.spoilt and failed is None:
            return Kind.STATE
        if self._draw.random() >= rate:
            return None
        possible = [kind for kind in program.kinds() if kind in self._regime.kinds]
        return self._draw.choices(possible, [self._regime.kinds[kind] for kind in possible])[0]

    def _spoils(self, program: Program) -> str:
        """How this cell, which will run well, spoils the state for the next; mostly not at all."""
        if program.last or self._draw.random() >= self._regime.spoilt:
            return ""
        return self._draw.choice(["named", "lost"])

    def _call(self, program: Program, kind: Kind | None, spoilt: str) -> str:
        if spoilt:
            return call(program.spoiling(spoilt))
        if kind is None:
            return call(program.right())
        if kind is Kind.MALFORMED:
            return malformed(program.right(), self._draw)
        return call(program.wrong(kind, self._draw, self._regime.far))

    def _plan(self, cell: int, failed: Kind | None) -> str:
        *changes, asked = (OPERATIONS[stem].words for stem in self._question.stems)
        steps = [asked] if cell else [*changes, "show"] if self._question.stepwise else [*changes, asked]
        plan = ", ".join(steps).capitalize() + "."
        if self._advice:
            return f"Use {self._advice}. {plan}"
        return f"It failed. {plan}" if failed and self._draw.random() < SORRY else plan

    def _believes_right(self, program: Program) -> bool:
        return all(self._believed[stem] == self._names[stem] for stem in program.question.stems)

    def _learn(self, came: str) -> None:
        """Take a name from the hint, and say so; where the library gives none, guess."""
        self._advice = ""
        if (missing := NO_HINT.search(came)) is not None:
            self._guess(missing["stem"], missing["suffix"])
            return
        lacked = HINT.search(came)
        if lacked is None or self._draw.random() >= self._regime.mend[Kind.ATTRIBUTE]:
            return
        stem, suffix = lacked["stem"], lacked["suffix"]
        if suffix:
            self._advice = f"{stem}_{suffix}"
        if self._believed[stem] != self._names[stem]:
            self._believed = {**self._believed, stem: suffix or self._draw.choice(SUFFIXES)}

    def _guess(self, stem: str, suffix: str) -> None:
        """Now and then, try a name that was not missing yet."""
        self._missing.add((stem, suffix))
        if self._believed[stem] != self._names[stem] and self._draw.random() < self._regime.mend[Kind.ATTRIBUTE]:
            left = [each for each in SUFFIXES if (stem, each) not in self._missing]
            self._believed = {**self._believed, stem: self._draw.choice(left)}

    def _expect(self, met: bool, program: Program, kind: Kind | None, came: str) -> None:
        if not met:
            raise AssertionError(
                f"{program.question} with {kind or 'no mistake'} ended otherwise than meant:\n{came}\n{self._turns[-1]}"
            )


def _read(printed: str) -> tuple[int, ...]:
    return tuple(map(int, printed.split()))


def texts(made: Sequence[Demonstration]) -> list[str]:
    """All that was said and heard, for a vocabulary."""
    return [text for each in made for text in (each.question.text, *each.turns, *each.results)]
