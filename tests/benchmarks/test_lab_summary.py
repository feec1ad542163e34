from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab import summary
from benchmarks.lab.environments import toy_environment
from benchmarks.lab.methods import RATES, TUNING
from benchmarks.lab.plots import band
from benchmarks.lab.recipes import recipe_of
from benchmarks.lab.results import kept, read_all, write
from benchmarks.lab.summary import reached, summaries, tuned_rate, worst_difference
from tests.benchmarks.lab_results import result, rising

GRPO = result("grpo", accuracy=rising(0.8, 60))
FAST = result("hindsight", accuracy=rising(0.9, 20), tokens=500.0)


def test_a_target_is_reached_on_the_straight_line_between_two_evaluations() -> None:
    points = [(float(x), 0.1 * x) for x in range(10)]
    assert reached(points, 0.45) == pytest.approx(4.5)
    assert reached(points, 0.0) == pytest.approx(reached(points, 0.05) or 0, abs=0.5)
    assert reached(points, 2.0) is None


def test_one_lucky_evaluation_reaches_nothing() -> None:
    points = [(float(x), 0.9 if x == 3 else 0.5) for x in range(10)]
    assert reached(points, 0.8) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0, 1))
def test_a_higher_target_is_never_reached_earlier(values: list[float], target: float) -> None:
    points = [(float(x), value) for x, value in enumerate(values)]
    low, high = reached(points, target / 2), reached(points, target)
    assert high is None or (low is not None and low <= high)


def test_ratios_are_to_grpo_with_the_same_seed() -> None:
    other = result("grpo", 1, accuracy=rising(0.6, 30))
    slow = result("hindsight", 1, accuracy=rising(0.65, 60))

    (grpo, ours) = summaries([GRPO, FAST, other, slow], "drift")

    assert (grpo.method, ours.method) == ("grpo", "hindsight")
    fast_ratio, slow_ratio = ours.step_ratio.values
    assert fast_ratio < 0.35
    assert slow_ratio > 1.2
    # Half the tokens in each step.
    assert ours.token_ratio.values[0] == pytest.approx(fast_ratio / 2)
    assert ours.recovery.mean == pytest.approx(0.4)


def test_a_seed_that_never_reaches_it_is_counted_as_such() -> None:
    (_, ours) = summaries([GRPO, result("saar", accuracy=rising(0.5, 60))], "drift")
    assert ours.steps.values == ()
    assert ours.steps.seeds == 1


def test_a_run_without_its_last_evaluation_is_in_no_summary() -> None:
    broken = result("saar", accuracy=rising(0.9, 20))
    broken.evaluation.pop(60)
    assert [each.method for each in summaries([GRPO, broken], "drift")] == ["grpo"]


def test_one_odd_evaluation_moves_no_end() -> None:
    odd = result("grpo", accuracy=lambda step: 0.2 if step == 55 else 0.8)
    assert summary.final(odd) == pytest.approx(0.8)


def test_what_one_seed_loses_another_does_not_hide() -> None:
    ahead = result("saar", accuracy=lambda step: rising(0.8, 60)(step) + 0.1)
    behind = result("saar", 1, accuracy=lambda step: rising(0.8, 60)(step) - 0.1)
    (_, ours) = summaries([GRPO, result("grpo", 1, accuracy=rising(0.8, 60)), ahead, behind], "drift")
    assert ours.worst == pytest.approx(0.0)
    assert ours.worst_seed == pytest.approx(-0.1)


def test_a_model_that_was_not_measured_at_the_end_has_no_recovery_there() -> None:
    begun = result("grpo", accuracy=rising(0.8, 60))
    begun.recovery.pop(60)
    (grpo,) = summaries([begun], "drift")
    assert grpo.recovery.values == ()


def test_the_worst_difference_is_at_equal_tokens() -> None:
    late = result("saar", accuracy=lambda step: 0.3 if step == 30 else rising(0.8, 60)(step))
    worst = worst_difference([late], [GRPO])
    assert worst is not None
    assert worst == pytest.approx(0.3 - 0.6)
    dear = result("roc", accuracy=rising(0.8, 60), tokens=2_000.0)
    assert (worst_difference([dear], [GRPO]) or 0) < -0.1


def test_a_band_spans_the_seeds_where_all_have_come_to() -> None:
    x, middle, low, high = band([[(0.0, 0.0), (10.0, 1.0)], [(0.0, 1.0), (20.0, 1.0)]], 10)
    assert (x[0], x[-1]) == (0.0, 10.0)
    assert (low[0], middle[0], high[0]) == (0.0, 0.5, 1.0)
    assert (low[-1], high[-1]) == (1.0, 1.0)


def test_the_learning_rate_is_the_best_of_all_once_all_were_tried(tmp_path: Path) -> None:
    ends = (0.5, 0.7, 0.6)
    for method, rate, end in zip(TUNING, RATES, ends, strict=True):
        assert tuned_rate(tmp_path) is None
        one = result(method.name, accuracy=rising(end, 30), steps=30, rate=rate)
        write(one, recipe_of(one.run, toy_environment("drift", 0), rate, 30), tmp_path)
    assert tuned_rate(tmp_path) == RATES[1]


def test_what_was_written_is_read_again_and_counts_as_done_for_the_same_settings_alone(tmp_path: Path) -> None:
    recipe = recipe_of(FAST.run, toy_environment("drift", 0), 2e-4, 60)
    write(FAST, recipe, tmp_path)

    (again,) = read_all(tmp_path)
    assert again.evaluation == {step: pytest.approx(each, abs=1e-5) for step, each in FAST.evaluation.items()}
    assert summary.final(again) == pytest.approx(summary.final(FAST))
    assert (again.rate, again.finished) == (2e-4, True)
    assert kept(FAST.run, recipe, tmp_path)
    assert not kept(FAST.run, recipe_of(FAST.run, toy_environment("drift", 0), 1e-4, 60), tmp_path)
    assert "/" not in (tmp_path / "drift-hindsight-0.json").read_text().split('"machine"')[0].replace("cleaner/", "")
