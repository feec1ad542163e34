"""Training while engines of their own sample (`separate_async`): whose weights gave each log-prob.

A run of two ranks and two such engines, ended after its third step and resumed. Every version of the weights is
kept, so that plain transformers can say what each of them gives. Some rollouts are made to wait for new weights
(`held`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cleaner_rl.train.preflight import Verdict
from cleaner_rl.train.preflight.exactness import check_advantages
from cleaner_rl.train.preflight.witness import Trained, by_process
from cleaner_rl.train.rows import to_row
from cleaner_rl.train.verl.plan import read_plan
from cleaner_rl.trajectory import Floats, Scores, TokenSpan, Trajectory
from tests.engine.train.exactness import EXACT, actor_logprobs, distances
from tests.engine.train.runs import cleaner_train, drawn, metrics, stored

pytestmark = pytest.mark.timeout(2_400)
FIRST, STEPS = 3, 5
SEPARATE = (
    *(
        "method=saar+roc",
        "tasks.held_out=[]",
        "verl.trainer.v1.trainer_mode=separate_async",
        "verl.trainer.n_gpus_per_node=2",
        "run.router=even",
    ),
    *("verl.trainer.save_freq=1", "verl.trainer.max_actor_ckpt_to_keep=0"),
    "verl.actor_rollout_ref.model.external_lib=tests.engine.train.held",
)
RANKS = 2
ROWS_OF_A_STEP = 4 * 4


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("separate")
    cleaner_train(world, folder, (*SEPARATE, f"run.steps={FIRST}"))
    return cleaner_train(world, folder, (*SEPARATE, f"run.steps={STEPS}"))


def test_async_updates_have_what_was_stored_and_fresh_rows_are_exact(run: Path) -> None:
    trained = list(updates(run.parent))
    kept = [each for each in drawn(run) if each.info.verdict["kept"]]  # type: ignore[index]
    assert Counter(map(stored, kept)) == Counter((tuple(row.ids), tuple(row.mask)) for _, row in trained)
    assert Counter(step for step, _ in trained) == dict.fromkeys(range(1, STEPS + 1), ROWS_OF_A_STEP)
    assert [line["step"] for line in metrics(run)] == list(range(1, STEPS + 1))
    recipe = read_plan(str(run)).recipe
    assert check_advantages(kept, [row for _, row in trained], recipe).verdict is Verdict.OK

    by_content: dict[object, set[int]] = defaultdict(set)  # in a small world several can be alike
    for each in kept:
        by_content[stored(each)].update(versions(each))
    apart: dict[bool, list[float]] = {True: [], False: []}
    for step, row in trained:
        mask = np.array(row.mask, bool)
        fresh = by_content[tuple(row.ids), tuple(row.mask)] == {step - 1}
        apart[fresh].append(float(distances(row.rollout, row.old)[mask].max()))
    # At staleness 0 the engines' weights are the actor's; older ones are not, or the versions would say nothing.
    assert max(apart[True]) < EXACT
    assert max(apart[False]) > 100 * EXACT


def test_async_every_logprob_is_of_the_weights_that_its_version_names(world: Path, run: Path) -> None:
    @cache
    def weights(version: int) -> Path:
        return run / "checkpoints" / f"global_step_{version}" / "actor" / "huggingface" if version else world / "model"

    rows = [each for each in drawn(run) if each.edits]
    spanning = [each for each in rows if len(versions(each)) > 1]
    assert spanning, "no repaired rollout spans versions of the weights"
    for row in [*spanning, *rows[:8]]:
        by_version = {version: actor_logprobs(weights(version), [row])[0] for version in around(versions(row))}
        begin = 0
        for placed in row.placed():
            end = begin + len(placed.span)
            scores = placed.span.rescored or (None if placed.moved else placed.span.sampled)
            if placed.owner.sampled and scores is not None:
                assert follows(scores, {version: found[begin:end] for version, found in by_version.items()})
            begin = end


def test_async_metrics_say_how_old_the_weights_are(run: Path) -> None:
    lines = [json.loads(line) for file in sorted(run.glob("verl-*.jsonl")) for line in file.read_text().splitlines()]
    worst = [line["data"]["training/off_policy/trajectory_staleness_worst/max"] for line in lines if line["step"]]
    assert len(worst) == STEPS
    assert worst[0] == 0, "the first step has fresh weights"
    assert worst[1] == 1, "the rollouts that waited began with the weights before"
    spans = [line["data"]["training/off_policy/trajectory_spans/max"] for line in lines if line["step"]]
    assert max(spans) > 1


def updates(folder: Path) -> Iterator[tuple[int, Trained]]:
    """The rows of all updates, with the step of the update; verl's own number is that of a rollout's start."""
    each_step = ROWS_OF_A_STEP // RANKS
    for process in by_process(folder):
        before = 0 if len(process) == FIRST * each_step else FIRST
        for number, row in enumerate(process):
            yield before + 1 + number // each_step, row


def versions(trajectory: Trajectory[TokenSpan]) -> range:
    """The weights that sampled or scored its tokens."""
    row = to_row(trajectory)
    assert row is not None
    return range(row.versions[0], row.versions[1] + 1)


def around(found: range) -> range:
    """With the version before: a turn may begin with weights that are replaced before it ends."""
    return range(max(0, found.start - 1), found.stop)


def follows(scores: Scores, by_version: Mapping[int, Floats]) -> bool:
    """Whether the log-probs are those of their version, or up to some token of the one before.

    verl reads the version when the engine has answered: that of a turn which ends during the replacement is the next.
    """
    assert scores.version is not None
    own = distances(scores.logprobs, by_version[scores.version]) < EXACT
    before = by_version.get(scores.version - 1)
    begun = np.zeros(len(own), bool) if before is None else distances(scores.logprobs, before) < EXACT
    return any(begun[:token].all() and own[token:].all() for token in range(len(own) + 1))
