from dataclasses import replace

import pytest

from cleaner_rl.resample import Quality, QualityOf, assess
from cleaner_rl.resample.quality import format_penalty, penalties
from cleaner_rl.tools import Status
from cleaner_rl.trajectory import Edit, RepairKind, RepairMode, Tally, TextSpan, Turn, encode
from tests.resample.builders import ERROR, FAULT, OK, TIMEOUT, edited, quality, rollout, turn


def test_r1_failure_is_a_status_and_no_word_in_the_output() -> None:
    talks_of_errors = rollout(turn(OK, output="mean squared error: 0.1\nError: none"))
    assert assess(talks_of_errors).residual == Tally(0, 1)
    assert assess(talks_of_errors).first_attempt == Tally(0, 1)
    times_out_silently = rollout(turn(TIMEOUT, output=""))
    assert assess(times_out_silently).residual == Tally(1, 1)


@pytest.mark.parametrize("status", [status for status in Status if status not in (OK, FAULT)])
def test_every_way_to_fail_counts(status: Status) -> None:
    assert assess(rollout(turn(OK, status))).residual == Tally(1, 2)


def test_s20_residual_errors_count_calls_and_not_trajectories() -> None:
    three_in_one = rollout(turn(ERROR, TIMEOUT, OK), turn(ERROR), turn(OK))
    assert assess(three_in_one).residual == Tally(3, 5)
    # What a repair took away is no residual error, though it stays a first one.
    assert assess(rollout(edited(RepairMode.SAAR, turn(ERROR), turn(OK, attempt=1)))).residual == Tally(0, 1)


def test_an_unedited_rollout_has_one_tally_twice() -> None:
    seen = assess(rollout(turn(OK, ERROR), Turn(TextSpan("thinks")), turn(OK)))
    assert seen.first_attempt == seen.residual == Tally(1, 3)


def test_a_live_repair_counts_its_first_turn_as_first_attempt() -> None:
    repaired = edited(RepairMode.SAAR, turn(ERROR, OK), turn(ERROR, attempt=1), turn(OK, attempt=2))
    assert assess(rollout(repaired, turn(OK))) == Quality(Tally(1, 3), Tally(0, 2))


def test_a_failed_live_repair_counts_kept_attempts_as_residual_only() -> None:
    attempts = [turn(ERROR, attempt=1), turn(ERROR, attempt=2)]
    first = edited(RepairMode.SAAR, turn(ERROR), *attempts, kind=RepairKind.NONE, result=ERROR)
    assert assess(rollout(first, *attempts, turn(OK))) == Quality(Tally(1, 2), Tally(3, 4))


def test_a_kept_attempt_is_no_first_attempt_even_with_a_ledger_of_its_own() -> None:
    # It branched into an answer without a call, which is kept beside it.
    edit = Edit(RepairMode.SAAR, RepairKind.NONE, (turn(ERROR, attempt=1), turn(attempt=2)))
    branched = replace(turn(ERROR, attempt=1), edit=edit)
    assert assess(rollout(turn(ERROR), branched)) == Quality(Tally(1, 1), Tally(2, 2))


def test_hindsight_counts_every_original_that_had_no_help() -> None:
    collapsed = edited(RepairMode.HINDSIGHT, turn(ERROR), turn(ERROR, ERROR), turn(OK))
    assert assess(rollout(collapsed)) == Quality(Tally(3, 4), Tally(0, 1))
    with_attempts = edited(RepairMode.HINDSIGHT, turn(ERROR), turn(ERROR, attempt=1), turn(OK))
    assert assess(rollout(with_attempts)).first_attempt == Tally(1, 2)


def test_edits_of_edits_are_followed_to_the_ground() -> None:
    live = edited(RepairMode.SAAR, turn(ERROR), turn(ERROR, attempt=1), turn(OK, attempt=2))
    inner = edited(RepairMode.HINDSIGHT, turn(TIMEOUT), turn(OK))
    collapsed = edited(RepairMode.HINDSIGHT, live, inner, turn(OK, OK))
    assert assess(rollout(collapsed)) == Quality(Tally(2, 5), Tally(0, 1))


def test_faults_and_calls_that_never_ran_are_in_no_tally() -> None:
    faulty = turn(FAULT, ERROR)
    waiting = Turn(TextSpan("so"), TextSpan("call"), calls=faulty.calls)
    assert assess(rollout(faulty, waiting)) == Quality(Tally(1, 1), Tally(1, 1))


def test_tokens_are_assessed_like_text() -> None:
    text = rollout(edited(RepairMode.SAAR, turn(ERROR), turn(OK, attempt=1)), turn(ERROR))
    assert assess(encode(text, lambda each: list(each.encode()))) == assess(text) == quality(2, 2, residual=1)


def test_share() -> None:
    assert Tally(1, 4).share == 0.25
    assert Tally(0, 4).share == 0.0
    assert Tally().share is None
    assert Quality() == Quality(Tally(0, 0), Tally(0, 0), 0.0)


@pytest.mark.parametrize(("answers", "penalty"), [(0, 1.0), (1, 0.0), (2, 0.5), (4, 0.75)])
def test_exactly_one_answer_is_clean(answers: int, penalty: float) -> None:
    assert format_penalty(answers) == penalty
    assert assess(rollout(), answers).format_penalty == penalty


def test_the_format_counts_as_clean_unless_somebody_looked() -> None:
    assert assess(rollout()).format_penalty == 0.0


def test_fewer_than_no_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 answers"):
        format_penalty(-1)


def test_the_penalty_is_the_deciding_share_plus_the_format_and_the_other_share_breaks_ties() -> None:
    one = quality(2, 4, residual=1, penalty=0.5)
    assert penalties([one], QualityOf.FIRST_ATTEMPT) == [(1.0, 0.25)]
    assert penalties([one], QualityOf.RESIDUAL) == [(0.75, 0.5)]
    assert penalties([], QualityOf.RESIDUAL) == []


def test_r2_a_tool_free_answer_is_neutral_among_those_it_competes_with() -> None:
    others = [quality(0, 4), quality(1, 4, residual=0), quality(3, 4, residual=1)]
    assert penalties([Quality(), *others], QualityOf.FIRST_ATTEMPT)[0] == (0.25, 0.0)
    # Half-way between the two in the middle where their number is even; its own format still counts.
    assert penalties([*others, Quality(format_penalty=0.5), quality(4, 4)], QualityOf.FIRST_ATTEMPT)[3] == (1.0, 0.125)
    assert penalties([Quality(), Quality()], QualityOf.FIRST_ATTEMPT) == [(0.0, 0.0)] * 2


def test_words_of_the_settings() -> None:
    assert [str(each) for each in QualityOf] == ["first_attempt", "residual"]
