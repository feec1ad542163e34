"""What the simulator of `benchmarks.balance` takes as given: speeds, trajectories, and the bound below every schedule.

Fixed before any scheduler was tuned on it. Speeds are measured (`benchmarks.balance_speed`) or calculated. The
trajectories are made: a step of 128 prompts x 16 rollouts, whole lengths (prompt, turns and observations) log-normal
with a mean of 7,000 tokens and cut at 20,480. Rollouts of one prompt resemble each other: the prompt makes up 60 % of
the variance, as a hard problem is hard for most of its rollouts. A trajectory samples some 800 tokens, calls a tool,
waits for seconds (one call in fifty for half a minute), reads some 150 tokens, and so on. A replica has room for 12 of
full length.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEAN, CAP = 7_000, 20_480
PROMPTS, ROLLOUTS = 128, 16
REPLICAS = 64
ROOM = 12 * CAP
SEQUENCES = 256
"""The most that an engine runs at once: vLLM's own default."""
SPEEDS = Path(__file__).parent / "results" / "balance_speed.json"


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds, each linear in what it is named for."""

    step: float
    """Any decode step."""
    sequence: float
    """Each sequence in it."""
    context: float
    """Each token of KV cache that its sequences attend to."""
    token: float
    """Each token of a prefill."""
    attention: float
    """Each pair of a prefilled token and one that it attends to."""

    def decode(self, steps: int, sequences: int, context: int) -> float:
        """Seconds of some steps in a row; `context` is what the sequences hold in all before the first."""
        first = self.step + self.sequence * sequences + self.context * context
        return steps * first + self.context * sequences * (steps * (steps - 1) / 2)

    def steps_within(self, seconds: float, sequences: int, context: int) -> int:
        """How many steps have begun `seconds` after the first did."""
        growth = self.context * sequences
        linear = self.step + self.sequence * sequences + self.context * context - growth / 2
        if growth == 0:
            return math.ceil(seconds / linear)
        return math.ceil((math.sqrt(linear * linear + 2 * growth * seconds) - linear) / growth)

    def prefill(self, cached: int, tokens: int) -> float:
        """Seconds to bring a sequence of which `cached` tokens are there to `tokens`."""
        return self.token * (tokens - cached) + self.attention * (tokens * tokens - cached * cached) / 2


def measured() -> Speed:
    """As vLLM had them."""
    figures = json.loads(SPEEDS.read_text())["figures"]
    return Speed(*(figures[name] for name in Speed.__slots__))


def calculated() -> Speed:
    """As a model of Qwen3-14B's shape may have them in bfloat16 on an H100, by its memory and arithmetic; not measured.

    Both at a share of the data sheet's peak: 75 % of 3.35 TB/s for what a step reads, 50 % of 990 TFLOP/s for what it
    computes.
    """
    parameters, layers, width, kv_width = 14.8e9, 40, 40 * 128, 8 * 128
    bandwidth, arithmetic = 0.75 * 3.35e12, 0.5 * 990e12
    token = 2 * parameters / arithmetic
    return Speed(
        step=2 * parameters / bandwidth,
        sequence=token,
        context=2 * 2 * layers * kv_width / bandwidth,
        token=token,
        attention=4 * layers * width / arithmetic,
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """One request."""

    read: int
    """Tokens that are new in its prompt: the task's, or an observation's."""
    sampled: int
    wait: float
    """Seconds in the tool afterwards; 0 after the last."""


@dataclass(frozen=True, slots=True)
class Script:
    """A trajectory as it will turn out, which no scheduler sees."""

    turns: tuple[Turn, ...]

    @property
    def tokens(self) -> int:
        """Its full length."""
        return sum(turn.read + turn.sampled for turn in self.turns)

    @property
    def sampled(self) -> int:
        """Decode steps that it is in."""
        return sum(turn.sampled for turn in self.turns)

    def attended(self) -> int:
        """The sum of its lengths over its decode steps."""
        total = length = 0
        for turn in self.turns:
            length += turn.read
            total += turn.sampled * length + turn.sampled * (turn.sampled - 1) // 2
            length += turn.sampled
        return total

    def prefilled(self, speed: Speed) -> float:
        """Seconds of prefill if nothing is ever computed twice."""
        seconds, length = 0.0, 0
        for turn in self.turns:
            seconds += speed.prefill(length, length + turn.read)
            length += turn.read + turn.sampled
        return seconds

    def alone(self, speed: Speed) -> float:
        """Seconds on a replica of its own."""
        waits = sum(turn.wait for turn in self.turns)
        decode = self.sampled * (speed.step + speed.sequence) + self.attended() * speed.context
        return waits + decode + self.prefilled(speed)


def scripts(seed: int, prompts: int = PROMPTS, rollouts: int = ROLLOUTS) -> list[Script]:
    """A step's trajectories, those of a prompt side by side."""
    random_of = random.Random(seed)
    spread, shared = 0.85, 0.6
    median = 5_300
    """With which the mean is 7,000 after the cut."""
    made = []
    for _ in range(prompts):
        prompt = random_of.gauss(0, spread * math.sqrt(shared))
        asked = random_of.randint(150, 450)
        for _ in range(rollouts):
            length = median * math.exp(prompt + random_of.gauss(0, spread * math.sqrt(1 - shared)))
            made.append(_script(random_of, asked, max(asked + 50, min(CAP, round(length)))))
    return made


def _script(random_of: random.Random, asked: int, length: int) -> Script:
    turns = []
    read, left = asked, length - asked
    while True:
        sampled = round(random_of.lognormvariate(math.log(650), 0.8))
        observed = round(random_of.lognormvariate(math.log(100), 0.9))
        if sampled + observed + 50 > left:
            turns.append(Turn(read, left, 0.0))
            return Script(tuple(turns))
        wait = 30.0 if random_of.random() < 0.02 else random_of.lognormvariate(math.log(1.0), 1.0)
        turns.append(Turn(read, max(1, sampled), wait))
        left -= max(1, sampled) + observed
        read = observed


def bound(work: Sequence[Script], speed: Speed, replicas: int = REPLICAS, room: int = ROOM) -> float:
    """Seconds that no schedule can beat: all work at peak throughput, or the longest trajectory alone.

    Peak throughput: whatever is paid by sequence and by token is paid once, and the steps are as few as can be: in none
    are more than `SEQUENCES`, nor more tokens than a replica has room for.
    """
    sampled = sum(script.sampled for script in work)
    attended = sum(script.attended() for script in work)
    steps = max(sampled / SEQUENCES, attended / room)
    seconds = steps * speed.step + sampled * speed.sequence + attended * speed.context
    seconds += sum(script.prefilled(speed) for script in work)
    return max(seconds / replicas, *(script.alone(speed) for script in work))
