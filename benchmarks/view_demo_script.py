"""What the toy policy of the viewer's sample can say: for each state a few turns, of which some are broken or wrong.

Programs are real and are really run; a state is a stage of a task, or what was just tried there and failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Say:
    """One thing that the policy can say: a thought, and a program unless it is the answer."""

    thought: str
    code: str = ""

    @property
    def text(self) -> str:
        """As the model writes it."""
        return f"{self.thought}\n```python\n{self.code}\n```" if self.code else self.thought


@dataclass(frozen=True)
class Problem:
    """A task: a question, its answer, and what can be said at each stage."""

    name: str
    question: str
    answer: str
    first: tuple[tuple[Say, ...], ...]
    """For each stage, what can be said at first."""
    after: dict[str, tuple[Say, ...]] = field(default_factory=dict)
    """After a program that failed, by a word that stands in it; the last one is for all others."""


ISPRIME = """def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
"""
COUNT = (
    ISPRIME
    + """
total = 0
for n in range(1, 1001):
    digits = sum(int(d) for d in str(n))
    if is_prime(digits):
        total += 1
print(total)"""
)
COUNT_BROKEN = COUNT.replace("in str(n))", "in n)")
COUNT_UNDEFINED = COUNT.replace(ISPRIME, "from math import isprime\n").replace("is_prime(digits)", "isprime(digits)")
COUNT_SHORT = ISPRIME + "\nprint(sum(is_prime(sum(map(int, str(n)))) for n in range(1, 1000 + 1)))"
PLAN = "The digit sums of numbers up to 1000 lie between 1 and 27. I go through all of them and test each sum."
DIGITS = Problem(
    "digit-sums",
    "How many integers from 1 to 1000 have a digit sum that is a prime number?",
    "340",
    first=(
        (
            Say(PLAN, COUNT_BROKEN),
            Say(PLAN, COUNT_UNDEFINED),
            Say(PLAN, COUNT),
            Say("A generator expression does it in one line.", COUNT_SHORT),
        ),
        (
            Say("The program counted 340 of them.\n\nThe answer is \\boxed{340}."),
            Say("340 of them don't qualify, so the answer is \\boxed{660}."),
        ),
    ),
    after={
        "in n)": (
            Say("`n` is an integer and can't be iterated over. I convert it to a string first.", COUNT),
            Say(
                "Perhaps a list of digits works better.", COUNT_BROKEN.replace("sum(int(d) for d in n)", "sum(list(n))")
            ),
        ),
        "": (
            Say("`math` has no `isprime`. I write the test myself, by trial division.", COUNT),
            Say("The TypeError comes from iterating over an integer; `map` over its string is simpler.", COUNT_SHORT),
            Say("Perhaps it is in sympy's math module.", COUNT_UNDEFINED.replace("from math", "from sympy.math")),
        ),
    },
)

ORDER = """n = 1
while pow(3, n, 2023) != 1:
    n += 1
print(n)"""
ORDER_ENDLESS = ORDER.replace("pow(3,", "pow(7,")
ORDER_LAMBDA = """from math import lcm

phi = lcm(6, 17 * 16)
divisors = [d for d in range(1, phi + 1) if phi % d == 0]
print(next(d for d in divisors if pow(3, d, 2023) == 1))"""
ORDER_TYPO = ORDER_LAMBDA.replace("range(1, phi + 1)", "range(1, phi + 1")
POWERS = "I multiply by the base until the remainder is 1 again."
MODULAR = Problem(
    "order-mod-2023",
    "What is the smallest positive integer n such that 3^n leaves the remainder 1 when divided by 2023?",
    "816",
    first=(
        (
            Say(POWERS, ORDER_ENDLESS),
            Say("2023 = 7 · 17², so the order divides lcm(6, 272).", ORDER_TYPO),
            Say(POWERS, ORDER),
            Say("2023 = 7 · 17², so the order divides lcm(6, 272).", ORDER_LAMBDA),
        ),
        (
            Say("The order of 3 modulo 2023 is 816, which divides φ(2023) = 1632.\n\nThe answer is \\boxed{816}."),
            Say("By Euler's theorem the answer is φ(2023), so it is \\boxed{1632}."),
        ),
    ),
    after={
        "pow(7,": (
            Say("It never ends: 7 divides 2023, so no power of 7 is 1. The base should be 3.", ORDER),
            Say("The loop needs an end.", ORDER_ENDLESS.replace("!= 1:", "!= 1 and n < 10**9:")),
        ),
        "": (
            Say("A bracket was never closed.", ORDER_LAMBDA),
            Say("Simpler: try every exponent in turn.", ORDER),
        ),
    },
)

PATHS = """from math import comb

n = 8
print(comb(2 * n, n) // (n + 1))"""
PATHS_NAME = PATHS.replace("import comb", "import combinations").replace("comb(2", "combinations(2")
PATHS_RECURSION = """from functools import cache

@cache
def paths(x, y):
    if y > x:
        return 0
    return paths(x - 1, y) + paths(x, y - 1)

print(paths(8, 8))"""
PATHS_BASE = PATHS_RECURSION.replace(
    "    return paths(x - 1", "    if y == 0:\n        return 1\n    return paths(x - 1"
)
CHECK = """table = [[0] * 9 for _ in range(9)]
for x in range(9):
    for y in range(x + 1):
        table[x][y] = 1 if y == 0 else table[x][y - 1] + (table[x - 1][y] if y < x else 0)
print(table[8][8])"""
CHECK_BROKEN = CHECK.replace("range(9)]", "range(8)]")
STEPS = "Below the diagonal, a path to (x, y) comes from the left or from below. I count them by recursion."
GRID = Problem(
    "lattice-paths",
    "How many paths of unit steps right and up lead from (0, 0) to (8, 8) without ever rising above the diagonal?",
    "1430",
    first=(
        (
            Say(STEPS, PATHS_RECURSION),
            Say("These are the Catalan numbers, C(2n, n) / (n + 1) for n = 8.", PATHS_NAME),
            Say(STEPS, PATHS_BASE),
            Say("These are the Catalan numbers, C(2n, n) / (n + 1) for n = 8.", PATHS),
        ),
        (
            Say("1430. I check it with a table, without the formula.", CHECK_BROKEN),
            Say("1430. I check it with a table, without the formula.", CHECK),
            Say("The eighth Catalan number is 1430.\n\nThe answer is \\boxed{1430}."),
            Say("There are C(16, 8) paths, so the answer is \\boxed{12870}."),
        ),
        (
            Say("Both ways agree.\n\nThe answer is \\boxed{1430}."),
            Say("Counting both sides of the diagonal, the answer is \\boxed{2860}."),
        ),
    ),
    after={
        "@cache": (
            Say("The recursion never ends: there is no first path. With y = 0 there is exactly one.", PATHS_BASE),
            Say(
                "A higher limit for the recursion should do.",
                "import sys\nsys.setrecursionlimit(9000)\n" + PATHS_RECURSION,
            ),
            Say("The closed form needs no recursion at all: it is a Catalan number.", PATHS),
        ),
        "table": (
            Say("The table is one row too small.", CHECK),
            Say("An index is off by one.", CHECK_BROKEN.replace("[8][8]", "[7][7]")),
        ),
        "": (
            Say("`math` calls it `comb`.", PATHS),
            Say("It must be in itertools.", PATHS_NAME.replace("math", "itertools")),
        ),
    },
)
PROBLEMS = (DIGITS, MODULAR, GRID)
