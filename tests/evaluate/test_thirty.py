"""The made set that the end-to-end run uses."""

from __future__ import annotations

from benchmarks.thirty import FILE, lines, problems
from cleaner_rl.tasks import load_named


def test_the_file_is_what_the_program_makes() -> None:
    assert FILE.read_text() == lines()
    name, loaded = load_named(str(FILE))
    assert name == "thirty"
    assert list(loaded.tasks) == problems()


def test_thirty_different_problems_in_three_grades() -> None:
    made = problems()
    assert len({task.question for task in made}) == len(made) == 30
    assert [sum(task.extra["grade"] == grade for task in made) for grade in ("easy", "medium", "hard")] == [10, 10, 10]
