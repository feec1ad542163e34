from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify import OnUnrepaired, PurifyConfig, PurifyScope, RepairConfig, Schedule
from cleaner_rl.trajectory import Phase, RepairMode, Seeds

PROBABILITY = st.floats(0, 1)


def test_s10_the_papers_values_are_defaults_and_can_be_changed() -> None:
    config = PurifyConfig()
    assert config.attempts == 3
    assert config.repair == RepairConfig(threshold=0.5, measure="difflib", refuse_stale=False)
    assert config.probability == 1.0
    assert config.scope_of(RepairMode.SAAR) is PurifyScope.ALL
    assert config.on_unrepaired is OnUnrepaired.KEEP_ATTEMPTS
    assert not config.skip_last_turn
    assert PurifyConfig(repair=RepairConfig(threshold=0.8)).repair.threshold == 0.8


def test_hindsight_repairs_successful_rollouts_unless_told_otherwise() -> None:
    assert PurifyConfig().scope_of(RepairMode.HINDSIGHT) is PurifyScope.SUCCESSFUL
    for scope in PurifyScope:
        assert {PurifyConfig(scope=scope).scope_of(mode) for mode in RepairMode} == {scope}


def test_s18_the_coin_is_seeded_by_the_rollout_and_fair() -> None:
    config = PurifyConfig(probability=0.7)
    rollouts = [Seeds(1, f"task {task}", rollout) for task in range(200) for rollout in range(10)]
    tossed = [config.applies(seeds, 0, Phase.TRAINING) for seeds in rollouts]
    assert tossed == [config.applies(seeds, 0, Phase.TRAINING) for seeds in rollouts]
    assert 0.66 < sum(tossed) / len(tossed) < 0.74
    other_run = [config.applies(Seeds(2, seeds.task, seeds.rollout), 0, Phase.TRAINING) for seeds in rollouts]
    assert tossed != other_run


def test_s18_the_coin_falls_the_same_in_every_release() -> None:
    config = PurifyConfig(probability=0.7)
    tossed = (config.applies(Seeds(1, "task", rollout), 0, Phase.TRAINING) for rollout in range(20))
    assert "".join(".x"[applies] for applies in tossed) == "xx.xx.xxxxx.xxxx.xxx"


def test_s18_evaluation_tosses_no_coin_and_repairs_only_if_told_to() -> None:
    rollouts = [Seeds(1, "task", rollout) for rollout in range(50)]
    for probability in (0.0, 0.5, 1.0):
        off = PurifyConfig(probability=probability)
        on = PurifyConfig(probability=probability, in_evaluation=True)
        assert not any(off.applies(seeds, 0, Phase.EVALUATION) for seeds in rollouts)
        assert all(on.applies(seeds, 0, Phase.EVALUATION) for seeds in rollouts)


@given(st.integers(0, 2**63), st.text(max_size=5), st.integers(0, 100))
def test_the_coin_is_certain_at_zero_and_one(run: int, task: str, rollout: int) -> None:
    seeds = Seeds(run, task, rollout)
    assert PurifyConfig(probability=1.0).applies(seeds, 0, Phase.TRAINING)
    assert not PurifyConfig(probability=0.0).applies(seeds, 0, Phase.TRAINING)


def test_a_schedule_is_level_outside_and_straight_between() -> None:
    schedule = Schedule(((10, 1.0), (20, 0.5), (40, 0.7)))
    assert [schedule.at(step) for step in (0, 10, 15, 20, 30, 40, 99)] == pytest.approx(
        [1.0, 1.0, 0.75, 0.5, 0.6, 0.7, 0.7]
    )
    assert Schedule(((5, 0.3),)).at(0) == Schedule(((5, 0.3),)).at(9) == 0.3


def test_a_schedule_is_used_at_the_step() -> None:
    config = PurifyConfig(probability=Schedule(((0, 0.0), (1, 1.0))))
    seeds = Seeds(1, "task", 0)
    assert not config.applies(seeds, 0, Phase.TRAINING)
    assert config.applies(seeds, 1, Phase.TRAINING)


@given(
    st.lists(st.tuples(st.integers(0, 50), PROBABILITY), min_size=1, unique_by=lambda point: point[0]),
    st.integers(0, 60),
)
def test_a_schedule_stays_between_its_points(points: list[tuple[int, float]], step: int) -> None:
    value = Schedule(tuple(sorted(points))).at(step)
    probabilities = [probability for _, probability in points]
    assert min(probabilities) - 1e-9 <= value <= max(probabilities) + 1e-9


@pytest.mark.parametrize("points", [(), ((2, 0.1), (1, 0.2)), ((1, 0.1), (1, 0.2))])
def test_a_schedule_without_order_is_refused(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Schedule(points)


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        PurifyConfig(probability=probability)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Schedule(((0, probability),))


def test_a_lookahead_needs_an_attempt() -> None:
    with pytest.raises(ValueError, match="attempts is 0"):
        PurifyConfig(attempts=0)
    assert PurifyConfig(attempts=1).attempts == 1


@pytest.mark.parametrize("scope", PurifyScope)
@pytest.mark.parametrize("on_unrepaired", OnUnrepaired)
def test_a_plain_word_is_the_choice_that_it_names(scope: PurifyScope, on_unrepaired: OnUnrepaired) -> None:
    config = PurifyConfig(scope=scope.value, on_unrepaired=on_unrepaired.value)  # type: ignore[arg-type]  # as a file has it
    assert config.scope is scope
    assert config.on_unrepaired is on_unrepaired


@pytest.mark.parametrize("misspelt", [{"scope": "succesful"}, {"on_unrepaired": "droop"}])
def test_a_misspelt_choice_is_refused(misspelt: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        PurifyConfig(**misspelt)
