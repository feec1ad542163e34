from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleaner_rl.evaluate import Evaluation, Repair, ResultsError, read_results
from cleaner_rl.evaluate.rates import Rate
from cleaner_rl.evaluate.report import write_report
from cleaner_rl.evaluate.scores import score, score_set
from tests.evaluate.builders import evaluation, sample, simulated


def test_figures_of_a_set_small_enough_to_count() -> None:
    run = score(
        [
            sample("a", 0, True, calls=2, failed_first=1, failed_left=1, episodes=1, recovered=1, sampled=10),
            sample("a", 1, False, calls=2, failed_first=2, failed_left=0, episodes=1, recovered=0, sampled=30),
            sample("b", 0, True, sampled=50),
            sample("b", 1, True, sampled=70),
        ]
    )
    values = {name: estimate.value for name, estimate in run.figures.items()}
    assert run.problems == {"a": Rate(1, 2), "b": Rate(2, 2)}
    assert values["pass@1"] == 0.75
    assert values["pass@2"] == 1.0
    assert values["errors_first"] == 0.75, "a: 1.5 per trajectory, b: 0"
    assert values["errors_residual"] == 0.25
    assert values["error_share"] == 3 / 4
    assert values["recovery"] == 1 / 2
    assert values["right_after_error"] == 1 / 2
    assert values["sampled"] == 40
    assert values["latency"] is None, "nobody measured it"


def test_problems_count_the_same_however_many_samples_were_judged() -> None:
    some = [sample("a", n, True) for n in range(9)] + [sample("b", 0, False)]
    assert score(some).figures["pass@1"].value == 0.5


def test_a_fault_is_absent_and_counted_apart() -> None:
    judged = [sample("a", 0, True), sample("b", 0, False)]
    faults = [sample("a", 1, None, fault="node gone"), sample("c", 0, None, fault="node gone")]
    with_faults, without = score([*judged, *faults]), score(judged)
    assert with_faults.figures == without.figures
    assert with_faults.faults == {"node gone": 2}
    assert set(with_faults.problems) == {"a", "b"}


def test_what_is_left_out_has_bounds() -> None:
    judged = [sample("a", 0, True), sample("a", 1, False), sample("b", 0, True)]
    faults = [sample("b", 1, None, fault="node gone"), sample("c", 0, None, fault="node gone")]
    # a: 1/2 either way; b: 1/2 or 1; c: 0 or 1.
    assert score([*judged, *faults]).bounds == pytest.approx((1 / 3, 2.5 / 3))
    assert score(judged).bounds is None
    assert score(faults).bounds == (0.0, 1.0), "nothing is known"


def test_pass_at_k_rests_on_problems_with_enough_samples() -> None:
    run = score([*(sample("a", n, n == 0) for n in range(4)), *(sample("b", n, True) for n in range(3))])
    assert run.figures["pass@2"].problems == 2
    assert (run.figures["pass@4"].value, run.figures["pass@4"].problems) == (1.0, 1)


def test_repair_is_compared_problem_by_problem() -> None:
    off = [sample(f"p{n}", 0, False) for n in range(6)]
    on = [sample(f"p{n}", 0, n < 3) for n in range(6)]
    result = score_set("set", {Repair.OFF: off, Repair.ON: on}, samples=1)
    assert result.difference is not None
    assert (result.difference.value, result.difference.better, result.difference.worse) == (0.5, 3, 0)
    assert result.difference.p == 2 / 8
    assert score_set("set", {Repair.OFF: off}, samples=1).difference is None


def test_nothing_judged_gives_no_figure_rather_than_a_zero() -> None:
    run = score([sample("a", 0, None, fault="node gone")])
    assert "pass@1" not in run.figures
    assert run.faults == {"node gone": 1}


def test_the_same_samples_give_the_same_figures_in_any_order() -> None:
    some = simulated(10, 3)
    assert score(some, seed=1) == score(some[::-1], seed=1)


def test_results_survive_json(tmp_path: Path) -> None:
    found = evaluation()
    text = json.dumps(found.to_json())
    assert Evaluation.from_json(json.loads(text)) == found
    (tmp_path / "results.json").write_text(text)
    assert read_results(tmp_path) == read_results(tmp_path / "results.json") == found


def test_results_from_before_bounds_and_intervals_here_are_still_read(tmp_path: Path) -> None:
    values = json.loads(json.dumps(evaluation(("aime24",)).to_json()))
    for each in values["sets"]:
        del each["difference"]["here_low"], each["difference"]["here_high"]
        for run in each["runs"].values():
            del run["bounds"]
    (tmp_path / "results.json").write_text(json.dumps(values))
    found = read_results(tmp_path)
    assert found.sets[0].difference is not None
    assert found.sets[0].difference.here_low is None
    write_report(found, tmp_path / "again")


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99}', "no json", '{"format": 1}'])
def test_what_is_no_result_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(ResultsError, match=r"results\.json"):
        read_results(tmp_path)


def test_a_missing_file_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cleaner eval"):
        read_results(tmp_path / "nowhere")
