"""Training while engines of their own sample (`device.mode: separate_async`): whose weights gave each log-prob.

A run of two ranks and two such engines, ended after its third step and resumed. Every version of the weights is
kept, so that plain transformers can say what each of them gives.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cleaner_rl.train.preflight.witness import seen as seen_in
from cleaner_rl.trajectory import Floats, Scores, TokenSpan, Trajectory
from tests.engine.train.exactness import EXACT, actor_logprobs, distances
from tests.engine.train.runs import cleaner_train, drawn, metrics, stored

pytestmark = pytest.mark.timeout(2_400)
FIRST, STEPS = 3, 5
SEPARATE = (
    *("method=saar+roc", "tasks.held_out=[]", "device.mode=separate_async", "device.per_node=2", "device.router=even"),
    *("run.save_every=1", "run.keep_checkpoints=0"),
)


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("separate")
    cleaner_train(world, folder, (*SEPARATE, f"run.steps={FIRST}"))
    return cleaner_train(world, folder, (*SEPARATE, f"run.steps={STEPS}"))


def test_async_updates_have_what_was_stored_and_fresh_rows_are_exact(run: Path) -> None:
    rows, trained = drawn(run), seen_in(run.parent)
    kept = [each for each in rows if each.info.roc["kept"]]  # type: ignore[index]
    assert Counter(map(stored, kept)) == Counter((tuple(each.ids), tuple(each.mask)) for each in trained)
    assert Counter(each.step for each in trained) == dict.fromkeys(range(1, STEPS + 1), 4 * 4)
    assert [line["step"] for line in metrics(run)] == list(range(1, STEPS + 1))

    by_content: dict[object, set[int]] = defaultdict(set)  # in a small world several can be alike
    for each in kept:
        by_content[stored(each)] |= versions(each)
    apart: dict[bool, list[float]] = {True: [], False: []}
    for row in trained:
        mask = np.array(row.mask, bool)
        fresh = by_content[tuple(row.ids), tuple(row.mask)] == {row.step - 1}
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
    assert worst[0] == worst[FIRST] == 0, "the first step of a start has fresh weights"
    assert max(worst) == 1


def versions(trajectory: Trajectory[TokenSpan]) -> set[int]:
    """The weights that sampled or scored its tokens."""
    scores = [scores for turn in trajectory.turns for span in turn.spans() for scores in (span.sampled, span.rescored)]
    return {each.version for each in scores if each is not None and each.version is not None}


def around(found: set[int]) -> range:
    """With the version before: a turn may begin with weights that are replaced before it ends."""
    return range(max(0, min(found) - 1), max(found) + 1)


def follows(scores: Scores, by_version: Mapping[int, Floats]) -> bool:
    """Whether the log-probs are those of their version, or of the one before up to some token and then of theirs."""
    assert scores.version is not None
    own = distances(scores.logprobs, by_version[scores.version]) < EXACT
    before = by_version.get(scores.version - 1)
    begun = np.zeros(len(own), bool) if before is None else distances(scores.logprobs, before) < EXACT
    return any(begun[:token].all() and own[token:].all() for token in range(len(own)))
