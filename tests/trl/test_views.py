"""Two views and rescue on an unmodified `GRPOTrainer`: what it is trained on is in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from cleaner_rl.purify import PurifyConfig, Views
from cleaner_rl.rollout import RescueConfig, RolloutBudget
from cleaner_rl.train.rows import Graded, failed_tokens, recovery_view
from cleaner_rl.train.trl import CleanerRollouts, TrlRefusedError
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read
from tests.trl import toy

Ran = tuple[list[Any], list[Any]]
"""The batches of the update, and the stored rollouts."""


LARGE = RescueConfig(share=2.0)
"""Groups are so small here that a fifth of their tokens is less than a turn."""


@pytest.fixture(scope="module")
def model() -> Any:
    return toy.prepared()


def train(model: Any, folder: Path, steps: int, **options: Any) -> Ran:
    with toy.rollouts(model, folder=folder, **options) as rollouts:
        _, seen = toy.trained(model, rollouts, toy.settings(folder, max_steps=steps, learning_rate=1e-3))
    return seen, list(read(folder / "trajectories", Phase.TRAINING))


@pytest.fixture(scope="module")
def two_views(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return train(model, tmp_path_factory.mktemp("views"), 5, purify=PurifyConfig(views=Views.ONE), rescue=LARGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rescue")


@pytest.fixture(scope="module")
def rescued(model: Any, folder: Path) -> Ran:
    """With two turns, whoever fails at first has none left to answer in."""
    return train(model, folder, 5, purify=PurifyConfig(views=Views.ONE), rescue=LARGE, budget=RolloutBudget(turns=2))


def rows_of(seen: list[Any]) -> list[Any]:
    """The ids and the loss mask of each row in the update."""
    rows = []
    for batch, _ in seen:
        for place in range(len(batch["completion_ids"])):
            prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist()
            there = batch["completion_mask"][place].bool()
            response, mask = (batch[name][place][there].tolist() for name in ("completion_ids", "tool_mask"))
            rows.append((prompt + response, mask))
    return sorted(rows)


def rows_in(stored: list[Any]) -> list[Any]:
    """The same of the rollouts that were trained on, in the view that the store names."""
    rows = []
    for each in stored:
        view, mask = each, each.loss_mask()
        if each.info.verdict.get("views") == ["recovery"]:
            view = cast("Graded", recovery_view(each))
            mask = view.loss_mask() & ~failed_tokens(view)
        if each.info.verdict["kept"]:
            rows.append((view.ids().tolist(), mask[len(view.prompt) :].astype(int).tolist()))
    return sorted(rows)


@pytest.mark.timeout(300)
def test_a_repair_that_the_model_would_hardly_have_tried_is_refused(two_views: Ran, model: Any, tmp_path: Path) -> None:
    _, stored = train(model, tmp_path, 1, purify=PurifyConfig(max_logprob_gap=1e-6))
    assert any(each.edits for each in two_views[1])
    assert stored
    assert not any(each.edits for each in stored)


@pytest.mark.timeout(300)
def test_wrong_rollouts_stay_as_they_were_sampled(two_views: Ran) -> None:
    _, stored = two_views
    assert {each.success for each in stored if each.edits and not each.info.rescued} == {True}


@pytest.mark.timeout(300)
def test_every_row_of_the_update_is_the_view_that_the_store_names(two_views: Ran) -> None:
    seen, stored = two_views
    assert rows_of(seen) == rows_in(stored)
    views = [each.info.verdict.get("views") for each in stored if each.edits]
    assert None in views
    assert ["recovery"] in views


@pytest.mark.timeout(300)
def test_a_rescue_takes_the_place_of_the_rollout_that_it_began_with(rescued: Ran) -> None:
    seen, stored = rescued
    assert rows_of(seen) == rows_in(stored)
    rescues = [each for each in stored if each.info.rescued]
    assert rescues
    for rescue in rescues:
        group = [each for each in stored if (each.key.step, each.key.task) == (rescue.key.step, rescue.key.task)]
        others = [each for each in group if each is not rescue]
        assert (rescue.success, {each.success for each in others}) == (True, {False})
        left_out = [each.key.rollout for each in group if not each.info.verdict["kept"]]
        assert left_out == [rescue.info.rescued["of"]]
        assert rescue.info.verdict["advantage"] > 0


def test_rescues_are_counted_those_in_vain_too(rescued: Ran, folder: Path) -> None:
    steps = [json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rescues = [each for each in rescued[1] if each.info.rescued]
    assert sum(step["rescues"] for step in steps) == len(rescues)
    assert sum(step["rescue_tries"] for step in steps) > len(rescues)
    assert sum(step["rescue_tokens"] for step in steps) > sum(each.info.sampled for each in rescues)


def test_log_probs_are_the_models_own_in_both_views_and_in_rescues(two_views: Ran, rescued: Ran) -> None:
    for seen, _ in (two_views, rescued):
        assert max(toy.distance(batch, known) for batch, known in seen) < 1e-5


def test_views_that_trl_or_the_method_has_not_are_refused() -> None:
    with pytest.raises(TrlRefusedError, match="take 'one' or 'clean'"):
        CleanerRollouts(None, purify=PurifyConfig(views=Views.FULL))
    with pytest.raises(TrlRefusedError, match="method='saar' makes none"):
        CleanerRollouts(None, purify=PurifyConfig(views=Views.ONE), method="saar")
