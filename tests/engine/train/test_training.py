"""The whole way through the real stack: a toy model, the sandbox, vLLM, verl, and what a run leaves.

A cut of `recipes/tiny-cpu.yaml`, by `cleaner train` itself, in the smallest world in which repairs occur.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.lab.reading import training
from benchmarks.toy.smallest import make
from cleaner_rl.purify import Phase
from cleaner_rl.purify.saar import NO_ROOM
from cleaner_rl.tools import feedback
from cleaner_rl.train import Recipe, Verdict
from cleaner_rl.train.launch.plan import read_plan
from cleaner_rl.train.preflight.run import answers
from cleaner_rl.train.preflight.witness import FOLDER
from cleaner_rl.train.preflight.witness import seen as seen_in
from cleaner_rl.trajectory import Seeds, TokenSpan, Trajectory, derive_seed, first_attempt_tally, residual_tally
from cleaner_rl.trajectory.store import read
from tests.engine.train.exactness import differences, distances
from tests.engine.train.witness import tasks
from tests.toy_site import site

__all__ = ["site"]

pytestmark = pytest.mark.timeout(2_400)  # the first to need a run waits for it
ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "recipes" / "tiny-cpu.yaml"
STEPS = 5
EXACT = 1e-5
"""At most 1.6e-6 was seen in this world."""
SECONDS = 1_500
"""A run takes one or two minutes on a quiet machine of two cores; imports in a dozen processes are most of it."""
CUT = (
    *("cold_start=null", "budget.prompt_tokens=256", f"run.steps={STEPS}", f"run.save_every={STEPS}"),
    *("batch.prompts=4", "batch.mini_batch=4", "batch.rollouts=4", "batch.micro_batch=8", "roc.sample=8"),
    *("roc.min_positive=1", "roc.min_negative=1"),
    "verl.actor_rollout_ref.model.external_lib=tests.engine.train.witness",
)
SAAR = (
    *("method=saar+roc", "device.per_node=1", "device.router=verl", "run.evaluate_every=5"),
    # So little room that some lookaheads end for want of it; and a coin for each rollout.
    *("budget.response_tokens=176", "purify.probability=0.7"),
)
HINDSIGHT = ("method=hindsight", "tasks.held_out=[]", "device.per_node=2", "device.router=even")
"""Two ranks, and with them two replicas of vLLM behind our router."""


def cleaner_train(world: Path, folder: Path, settings: Sequence[str]) -> None:
    arguments = [f"--set={each}" for each in (*CUT, f"run.folder={folder}", *settings)]
    program = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "train", str(RECIPE), *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"TOY": str(world), FOLDER: str(folder), "PYTHONPATH": path}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            program, env={**os.environ, **own, "HF_HUB_OFFLINE": "1"}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
        log.seek(0)
        assert code == 0, log.read()[-5_000:]


@pytest.fixture(scope="module")
def world(site: Path) -> Path:
    return make(site / "world")


@pytest.fixture(scope="module")
def saar(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SAAR with RoC, on one rank."""
    folder = tmp_path_factory.mktemp("saar")
    cleaner_train(world, folder, (*SAAR, f"tasks.held_out=[{world / 'train.parquet'}]"))
    return folder / "tiny-cpu"


@pytest.fixture
def hindsight(world: Path, tmp_path: Path) -> Path:
    """A run of hindsight, on two ranks."""
    cleaner_train(world, tmp_path, HINDSIGHT)
    return tmp_path / "tiny-cpu"


def drawn(run: Path, phase: Phase = Phase.TRAINING) -> list[Trajectory[TokenSpan]]:
    found = [each for each in read(run / "trajectories", phase) if each.key.run == run.name]
    assert found
    assert all(isinstance(each.prompt, TokenSpan) for each in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("method", ["saar", "hindsight"])
def test_a_run_trains_on_exact_clean_trajectories(world: Path, method: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(method)
    trained = seen_in(run.parent)
    rows = drawn(run)
    for step in range(1, STEPS + 1):
        # What reached the update is what was stored and kept: every id, and which of them is learnt.
        kept = [each for each in rows if each.key.step == step and each.info.roc["kept"]]  # type: ignore[index]
        assert len(kept) == 4 * 4
        seen = [each for each in trained if each.step == step]
        assert Counter(map(stored, kept)) == Counter((tuple(each.ids), tuple(each.mask)) for each in seen)
        # What the rollout said of each learnt token is what the actor says, to rounding, at every step's weights.
        advantages = {stored(each): each.info.roc["advantage"] for each in kept}  # type: ignore[index]
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
    assert (run / "checkpoints" / f"global_step_{STEPS}" / "actor" / "huggingface").is_dir()


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
        verdict: Any = each.info.roc
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


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def stored(trajectory: Trajectory[TokenSpan]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A trajectory's ids, and the loss mask of its response."""
    mask = trajectory.loss_mask()[len(trajectory.prompt) :]
    return tuple(trajectory.ids().tolist()), tuple(mask.astype(int).tolist())
