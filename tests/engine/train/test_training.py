"""The whole way through the real stack: a toy model, the sandbox, vLLM, verl, and what a run leaves.

A cut of `recipes/tiny-cpu.yaml`, by `cleaner train` itself, in the smallest world in which repairs occur.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.lab.reading import training
from cleaner_rl.purify.saar import NO_ROOM
from cleaner_rl.tools import derive_seed, feedback
from cleaner_rl.train import Recipe, Verdict
from cleaner_rl.train.preflight.run import answers
from cleaner_rl.train.preflight.witness import seen as seen_in
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.trajectory import Phase, Seeds, TokenSpan, Trajectory, first_attempt_tally, residual_tally
from tests.engine.train.exactness import EXACT, differences, distances
from tests.engine.train.runs import cleaner_train, drawn, metrics, stored
from tests.engine.train.witness import tasks

pytestmark = pytest.mark.timeout(2_400)  # the first to need a run waits for it
STEPS = 5
SAAR = (
    *(f"run.steps={STEPS}", f"verl.trainer.save_freq={STEPS}"),
    *("method=saar+roc", "verl.trainer.n_gpus_per_node=1", "run.router=verl", "verl.trainer.test_freq=5"),
    # So little room that some lookaheads end for want of it; and a coin for each rollout.
    *("budget.response_tokens=176", "purify.probability=0.7"),
)
HINDSIGHT = (
    *(f"run.steps={STEPS}", f"verl.trainer.save_freq={STEPS}"),
    *("method=hindsight", "purify.scope=all", "tasks.held_out=[]"),
    *("verl.trainer.n_gpus_per_node=2", "run.router=even"),
)
"""Two ranks, and with them two replicas of vLLM behind our router."""


@pytest.fixture(scope="module")
def saar(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SAAR with RoC, on one rank."""
    folder = tmp_path_factory.mktemp("saar")
    return cleaner_train(world, folder, (*SAAR, f"tasks.held_out=[{world / 'train.parquet'}]"))


@pytest.fixture
def hindsight(world: Path, tmp_path: Path) -> Path:
    """A run of hindsight, on two ranks."""
    return cleaner_train(world, tmp_path, HINDSIGHT)


@pytest.mark.parametrize("method", ["saar", "hindsight"])
def test_a_run_trains_on_exact_clean_trajectories(world: Path, method: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(method)
    trained = seen_in(run.parent)
    rows = drawn(run)
    for step in range(1, STEPS + 1):
        # What reached the update is what was stored and kept: every id, and which of them is learnt.
        kept = [each for each in rows if each.key.step == step and each.info.verdict["kept"]]  # type: ignore[index]
        assert len(kept) == 4 * 4
        seen = [each for each in trained if each.step == step]
        assert Counter(map(stored, kept)) == Counter((tuple(each.ids), tuple(each.mask)) for each in seen)
        # What the rollout said of each learnt token is what the actor says, to rounding, at every step's weights.
        advantages = {stored(each): each.info.verdict["advantage"] for each in kept}  # type: ignore[index]
        for each in seen:
            mask = np.array(each.mask, bool)
            assert distances(each.rollout, each.old)[mask].max() < EXACT
            assert each.advantages[mask] == pytest.approx(advantages[tuple(each.ids), tuple(each.mask)], rel=1e-6)

    # So it is by plain transformers; and without re-scoring it would not be.
    far = differences(world / "model", [each for each in rows if each.key.step == 1])
    assert far.moved_tokens > 0
    assert far.clean < EXACT
    assert far.moved_as_sampled > 1_000 * far.clean

    assert [line["step"] for line in metrics(run)] == list(range(1, STEPS + 1))
    saved = run / "checkpoints" / f"global_step_{STEPS}" / "actor" / "huggingface"
    assert json.loads((saved / "config.json").read_text())["dtype"] == "float32"


def test_a_preflight_finds_nothing_against_this_run(saar: Path) -> None:
    recipe = read_plan(str(saar)).recipe
    found = list(answers(recipe, recipe, saar, saar.parent))
    assert {each.name: each.words for each in found if each.verdict is not Verdict.OK} == {}
    assert len(found) == 13


def test_the_lab_would_see_repairs_and_selection(saar: Path) -> None:
    """The lab in short: fails if SAAR stops repairing or RoC stops selecting, by what the lab itself reads of a run."""
    figures = training(saar).values()
    repaired = sum(step["grafts"] + step["replacements"] for step in figures)
    assert repaired > sum(step["refused"] for step in figures)
    assert sum(step["raw_errors"] for step in figures) > 0.5
    assert all(step["sampled_tokens"] > 0 for step in figures)

    groups: dict[object, list[Mapping[str, Any]]] = defaultdict(list)
    for each in drawn(saar):
        verdict: Any = each.info.verdict
        if verdict["penalty"] is not None:
            groups[each.key.step, each.key.task].append(verdict)
    chosen = []
    for verdicts in groups.values():
        kept = [each["penalty"] for each in verdicts if each["kept"]]
        left = [each["penalty"] for each in verdicts if not each["kept"]]
        if kept and left:
            assert max(kept) <= min(left)
            chosen.append(min(left) > min(kept))
    # Where all successes are alike there is nothing to choose; in some groups they aren't.
    assert any(chosen)


def test_s14_a_lookahead_without_room_ends_and_the_step_goes_on(saar: Path) -> None:
    recipe = read_plan(str(saar)).recipe
    rows = drawn(saar)
    assert NO_ROOM in [edit.refusal for each in rows for _, edit in each.edits]
    for each in rows:
        assert len(each) <= len(each.prompt) + recipe.budget.response_tokens


def test_s18_the_coin_is_seeded_and_an_evaluation_is_never_repaired(saar: Path) -> None:
    recipe = read_plan(str(saar)).recipe
    failing = [each for each in drawn(saar) if first_attempt_tally(each).failed]
    coins = Counter((bool(each.edits), tossed(recipe, each)) for each in failing)
    assert coins[True, True] > 0
    assert coins[False, False] > 0
    assert coins[True, False] == coins[False, True] == 0

    evaluated = drawn(saar, Phase.EVALUATION)
    assert {each.key.step for each in evaluated} == {0, STEPS}
    assert any(residual_tally(each).failed for each in evaluated)
    assert not any(each.edits for each in evaluated)


def tossed(recipe: Recipe, trajectory: Trajectory[TokenSpan]) -> bool:
    """What the coin of a rollout says, by its seeds alone."""
    key = trajectory.key
    seeds = Seeds(derive_seed(recipe.seed, Phase.TRAINING, key.step, 0), key.task, key.rollout)
    return recipe.purify.config().applies(seeds, key.step, Phase.TRAINING)


def test_s20_residual_errors_are_logged_call_by_call(saar: Path) -> None:
    stored_rows = drawn(saar)
    for line in metrics(saar):
        rows = [each for each in stored_rows if each.key.step == line["step"]]
        failed = [sum(result.failed for turn in each.turns for result in turn.results) for each in rows]
        assert line["metrics"]["errors_per_trajectory"] == pytest.approx(sum(failed) / len(rows))


def test_s21_the_model_sees_the_whole_output_of_the_result_that_is_counted(saar: Path) -> None:
    turns = [turn for each in drawn(saar) for turn in each.turns if turn.observation is not None]
    long = [turn for turn in turns if any(len(result.output) > 256 for result in turn.results)]
    assert long
    for turn in turns:
        assert turn.observation is not None
        if turn.results:
            assert all(feedback(result) in turn.observation.text for result in turn.results)


def test_s22_rollouts_leave_no_task_behind(saar: Path) -> None:
    left = tasks(saar.parent)
    # When the last rollout of a step ends, hardly more is there than verl's own; 128 rollouts later it is the same.
    assert min(left[STEPS]) < min(left[1]) + 8


def test_s23_the_newline_after_each_end_of_turn_is_there(saar: Path) -> None:
    tokenizer = Tokenizer.from_file(str(saar / "tokenizer.json"))
    calls = 0
    for each in drawn(saar):
        text = tokenizer.decode(each.ids().tolist(), skip_special_tokens=False)
        before, _, _ = text.removesuffix("\n").rpartition("<|im_end|>")
        assert before.count("<|im_end|>") == before.count("<|im_end|>\n<|im_start|>")
        calls += sum(turn.observation is not None for turn in each.turns)
    assert calls > 0
