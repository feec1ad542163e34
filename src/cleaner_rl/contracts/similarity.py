"""What every similarity measure must do."""

from __future__ import annotations

import time
from itertools import combinations_with_replacement

TEXTS = (
    "",
    "x",
    "print(1)",
    "print(2)",
    "def f(n):\n    return n * f(n - 1) if n else 1\nprint(f(5))\n",
    "def f(n):\n    return n * f(n - 1) if n else 1\nprint(f(5)",
    "SELECT name FROM people WHERE age > 3",
    "é 𝒳 \x00 \t\r\n",
    "((((" * 200,
)
LONG = "".join(f"value_{number} = {number} * {number}\n" for number in range(400))
SECONDS = 20.0


class SimilarityContract:
    """Subclass it, name the subclass `Test…`, and give `measure`."""

    def measure(self, original: str, verified: str) -> float:
        """Your measure."""
        raise NotImplementedError

    def test_it_is_a_number_from_0_to_1(self) -> None:
        """For any two texts, code or not."""
        for a, b in combinations_with_replacement(TEXTS, 2):
            self._value(a, b)

    def test_equal_texts_are_wholly_alike(self) -> None:
        """A threshold of 1 means: the same."""
        for text in TEXTS:
            value = self._value(text, text)
            assert value == 1.0, f"{text!r} and itself are {value} alike, not 1"

    def test_it_is_symmetric(self) -> None:
        """Which of two failed first is not a matter of likeness."""
        for a, b in combinations_with_replacement(TEXTS, 2):
            one, other = self._value(a, b), self._value(b, a)
            assert one == other, f"{a!r} and {b!r} are {one} alike, and {other} the other way round"

    def test_it_tells_texts_apart(self) -> None:
        """A measure that is always 1 makes every repair a graft."""
        value = self._value("print(1)", "SELECT name FROM people WHERE age > 3")
        assert value < 1.0, "two texts without a word in common are wholly alike"
        assert self._value("print(1)", "print(2)") >= value, "print(2) is less like print(1) than a query is"

    def test_it_gives_the_same_each_time(self) -> None:
        """A trajectory that is purified again comes out the same."""
        values = {self._value(TEXTS[4], TEXTS[5]) for _ in range(5)}
        assert len(values) == 1, f"five calls gave {sorted(values)}"

    def test_a_long_program_takes_seconds_at_most(self) -> None:
        """It runs once for every repair."""
        begun = time.process_time()
        self._value(LONG, LONG[::-1])
        self._value(LONG, LONG + "print(value_7)\n")
        spent = time.process_time() - begun
        assert spent < SECONDS, f"two pairs of {len(LONG)} characters took {spent:.1f} s"

    def _value(self, a: str, b: str) -> float:
        try:
            value = self.measure(a, b)
        except Exception as error:
            raise AssertionError(f"it raised {error!r} on {a[:80]!r} and {b[:80]!r}") from error
        assert isinstance(value, int | float), f"it gave {value!r}, which is no number"
        assert 0.0 <= value <= 1.0, f"it gave {value} for {a[:80]!r} and {b[:80]!r}, which is not from 0 to 1"
        return float(value)
