"""What a row teaches, and what it only shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner_rl.purify.logs.sft import sft_row
from cleaner_rl.trajectory import Ending, TokenSpan, Turn
from tests.builders import answered, drafted, failed, trajectory, worked, written

ASKED = {"messages": [{"role": "user", "content": "What is 1+1?"}], "tools": []}
CUT_OFF = drafted(written("print(2"))


@pytest.mark.parametrize(
    ("last", "ending", "taught"),
    [
        (answered(), Ending.ANSWERED, [0, 1, 1]),
        (answered("The ans"), Ending.TOKEN_LIMIT, [0, 1, 0]),
        (CUT_OFF, Ending.TOKEN_LIMIT, [0, 1, 0]),
        (worked(), Ending.TOKEN_LIMIT, [0, 1, 1]),  # only what it was told had no room
    ],
)
def test_turns_that_failed_or_were_cut_off_are_shown_and_not_taught(
    last: Turn[TokenSpan], ending: Ending, taught: list[int]
) -> None:
    made = replace(trajectory(failed(), worked(), last), ending=ending, extra=ASKED)
    row = sft_row(made)
    assert row is not None
    written_by = [message["role"] for message in row["messages"]]
    assert [mask for role, mask in zip(written_by, row["loss_mask"], strict=True) if role == "assistant"] == taught
    assert sft_row(made, clean_only=True) is None, "it has a failed call"


def test_of_clean_rollouts_those_that_were_cut_off_give_no_row() -> None:
    cut_off = replace(trajectory(worked(), CUT_OFF), ending=Ending.TOKEN_LIMIT, extra=ASKED)
    assert sft_row(cut_off, clean_only=True) is None
    assert sft_row(replace(trajectory(worked(), answered()), ending=Ending.ANSWERED, extra=ASKED), clean_only=True)
