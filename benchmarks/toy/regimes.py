"""The toy environments as settings: how often which mistake is made and corrected, and whether names have changed.

- `mistakes`: a session, all ten kinds. What shows a repair at work.
- `drift`: the demonstrations know old names, half of which have changed since; errors that feedback can correct.
  `drift-unhinted` is the same with a library that doesn't say the right name.
- `drift-guess`: as `drift-unhinted`, with demonstrations that try another name when one is missing. Those of
  `drift-unhinted` never do, and its model repeats the name that it believes in.
- `starved`: as `drift`, with longer programs and more changed names: a hint names one, and a program has two or three
  that are wrong, so the model seldom corrects itself within its two calls.
- `per-task`: the names differ from task to task, and only the library's hint says which are right: what a first call
  needs can't be known beforehand. Its model is that of `drift`.
- `slips`: the names are known, the programs longer, the mistakes random: a model that knows better.
- `one-by-one`: each operation is a call of its own, a sixth of the calls fail, and answers are wrong mostly because
  another operation was taken than was asked for: the situation of the CLEANER paper in miniature.

An environment has many worlds, which differ in the names that changed and in the tasks. The demonstrations know none of
them, so that worlds share a model.

Rates are those of the demonstrations. What the model learns of them is measured (`measure`), not assumed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.toy.library import OPERATIONS, SUFFIXES, changed, random_names, task_names
from benchmarks.toy.mistakes import DEMONSTRATED, Kind
from cleaner_rl.tasks import Prompt, ToolKind, load_prompt
from cleaner_rl.tools import derive_seed

LATER = ("per_task", "one_by_one", "world")
MEND = {
    Kind.SYNTAX: 0.85,
    Kind.NAME: 0.85,
    Kind.TYPE: 0.8,
    Kind.VALUE: 0.8,
    Kind.IMPORT: 0.85,
    Kind.ATTRIBUTE: 0.75,
    Kind.INDEX: 0.75,
    Kind.STATE: 0.75,
    Kind.TIMEOUT: 0.6,
    Kind.MALFORMED: 0.8,
}
"""Mends a try: between the easy ones, whose message says it all, and a limit, whose message says nothing."""


@dataclass(frozen=True, slots=True)
class Regime:
    """One toy environment, and how often its demonstrations make which mistake."""

    name: str
    tool: ToolKind = ToolKind.STATELESS
    changes: int = 1
    """Operations before the one that gives the number."""
    stepwise: float = 0.0
    """The share of questions that take two calls."""
    spoilt: float = 0.0
    """Of those, the share whose first call runs well and spoils the state."""
    first: float = 0.6
    """How often a call that follows no failure has a mistake."""
    kinds: Mapping[Kind, float] = field(default_factory=lambda: dict.fromkeys(DEMONSTRATED, 1.0))
    """Which mistake, by weight, among those that can be made."""
    mend: Mapping[Kind, float] = field(default_factory=lambda: dict(MEND))
    """How often a try after such a failure has no further mistake."""
    far: float = 0.35
    """How often a mistake is a wrong approach, where its kind has one."""
    silent: float = 0.0
    """How often a call takes another operation than was asked for: it runs, and the answer is wrong."""
    drifted: int = 0
    """Of the twenty names, how many have changed since the demonstrations."""
    strange: float = 0.0
    """The share of demonstrations with a library of random names, so that reading a hint is learnt, or guessing."""
    hint: bool = True
    """Whether the library answers a wrong name with the right one."""
    calls: int = 6
    """The budget that rollouts are meant to have."""
    seed: int = 0
    """Of the names."""
    per_task: bool = False
    """Whether the library has other names for each list of numbers."""
    one_by_one: bool = False
    """Whether each operation is a call of its own, on the list that the call before printed."""
    world: int = 0
    """Which names have changed, and which tasks there are; no demonstration depends on it."""

    @property
    def prompt_file(self) -> Path:
        """The file of its prompt."""
        return Path(__file__).with_name(f"prompt_{self.tool}.toml")

    @property
    def prompt(self) -> Prompt:
        """What the model is told."""
        return load_prompt(self.prompt_file)

    @property
    def known(self) -> dict[str, str]:
        """The names that the demonstrations know."""
        return random_names(random.Random(derive_seed(self.seed, "known names")))

    @property
    def current(self) -> dict[str, str]:
        """The names that the library has when the model is at work."""
        world = (self.world,) if self.world else ()
        return changed(self.known, self.drifted, random.Random(derive_seed(self.seed, "changed names", *world)))

    def names(self, numbers: Sequence[int]) -> dict[str, str]:
        """The names that the library has for a task over these numbers."""
        return task_names(numbers, self.world) if self.per_task else self.current

    @property
    def largest(self) -> int | None:
        """The largest number in a list: where lists are copied from call to call, they are kept short."""
        return 99 if self.one_by_one else None

    def strangers(self, rounds: int = 2) -> list[dict[str, str]]:
        """Libraries with random names, for the demonstrations only.

        In each round every function has each suffix once: what its name is, nothing but the hint can tell.
        """
        draw = random.Random(derive_seed(self.seed, "strange names"))
        columns = {stem: [each for _ in range(rounds) for each in _shuffled(SUFFIXES, draw)] for stem in OPERATIONS}
        return [{stem: column[place] for stem, column in columns.items()} for place in range(rounds * len(SUFFIXES))]

    def to_json(self) -> dict[str, object]:
        """As JSON values: all that the demonstrations depend on; without what is as it always was, as in `Lessons`."""
        values = {name: value for name, value in asdict(self).items() if value or name not in LATER}
        return values | ({"strangers": self.strangers()} if self.strange else {})


def _shuffled(values: Sequence[str], draw: random.Random) -> list[str]:
    return draw.sample(values, len(values))


_HARD = dict.fromkeys(MEND, 0.6)
"""So seldom that a lookahead of three tries leaves failures too: where it repairs all, groups have one reward."""
_DRIFT = Regime(
    "drift",
    first=0.4,
    kinds={Kind.SYNTAX: 1.0, Kind.TYPE: 3.0, Kind.NAME: 1.0, Kind.IMPORT: 2.0, Kind.ATTRIBUTE: 1.0},
    mend=_HARD,
    # Changed names make most failures, and their corrections are alike: so that a fair share of all needs another
    # program, most of the rest does.
    far=0.8,
    silent=0.15,
    drifted=10,
    strange=0.75,
    calls=2,
)
REGIMES = {
    each.name: each
    for each in (
        Regime("mistakes", tool=ToolKind.SESSION, stepwise=0.3, spoilt=0.5, kinds=dict.fromkeys(DEMONSTRATED, 1.0)),
        _DRIFT,
        replace(_DRIFT, name="drift-unhinted", hint=False, strange=0.0),
        replace(_DRIFT, name="drift-guess", hint=False, strange=0.25),
        replace(_DRIFT, name="starved", changes=2, drifted=14),
        replace(_DRIFT, name="per-task", per_task=True, drifted=0, calls=5),
        Regime("one-by-one", changes=3, first=0.15, mend=_HARD, silent=0.15, one_by_one=True, calls=15),
        Regime("slips", changes=2, first=0.6, mend=_HARD, silent=0.15, far=0.5, calls=2),
    )
}
