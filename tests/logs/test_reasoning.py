"""A repair is made only where the reasoning around it stays true."""

from __future__ import annotations

import pytest

from cleaner_rl.logs import Reading, purify_log, read_record
from cleaner_rl.logs.reasoning import loses_what_it_names
from cleaner_rl.logs.warrant import Unwarranted
from cleaner_rl.purify import RepairConfig
from tests.logs.cases import FIX, SLIP, UNREAD, Case, Step, py
from tests.logs.rendering import openai


def left(*steps: Step) -> list[str]:
    """Return why failures among these steps are left alone; empty if all are repaired."""
    found = purify_log(read_record(openai(Case("one", steps, ())), "openai", 0, Reading()), RepairConfig())
    return [each.reason.value for each in found.left_alone]


@pytest.mark.parametrize(
    ("reasoning", "lost"),
    [
        ("I use `exp` here.", True),
        ('I use "exp" here.', True),
        ("I compute exp(1).", True),
        ("The decimal module does it.", True),
        ("I compute the value.", False),
        ("I use `math`.", False),
        ("", False),
    ],
)
def test_reasoning_may_not_name_what_the_correction_lacks(reasoning: str, lost: bool) -> None:
    failed = "import decimal\nimport math\nvalue = math.exp(1)"
    assert loses_what_it_names(reasoning, failed, "import math\nprint(math.sqrt(2))") is lost


@pytest.mark.parametrize(
    ("said", "reasons"), [("I add.", []), ("I add `yards`.", [Unwarranted.OTHER_TARGET]), ("I add `1`.", [])]
)
def test_a_graft_is_refused_where_the_reasoning_that_stays_names_what_is_gone(said: str, reasons: list[str]) -> None:
    slip = Step(said, (py("print(1 + yards))", UNREAD),))
    assert left(slip, Step("So.", (py("print(1 + yard)", "2"),)), Step("It is 2.")) == reasons


@pytest.mark.parametrize(
    ("behind", "reasons"),
    [
        ("It is 2.", []),
        ("I apologize for the confusion; it is 2.", []),
        ("I apologise for the mistake. It is 2.", [Unwarranted.MENTIONED]),
        ("There was a slip in my previous response. It is 2.", [Unwarranted.MENTIONED]),
    ],
)
def test_a_repair_is_refused_where_the_turn_behind_it_apologises(behind: str, reasons: list[str]) -> None:
    assert left(SLIP, FIX, Step(behind)) == reasons
    assert left(SLIP, FIX, Step("Next."), Step(behind)) == reasons
