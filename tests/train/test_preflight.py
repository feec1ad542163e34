"""What a preflight makes of what it saw: each fault turns its own finding red, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cleaner_rl.train import Verdict
from cleaner_rl.train.launch.start import sandbox
from cleaner_rl.train.preflight import Finding, Preflight
from cleaner_rl.train.preflight.capacity import check_cores, check_disk, check_memory, check_sandbox, check_time
from cleaner_rl.train.preflight.exactness import (
    check_advantages,
    check_logprobs,
    check_rows,
    check_template,
    moved_tokens,
    stored_rows,
)
from cleaner_rl.train.preflight.page import html
from cleaner_rl.train.preflight.run import LOUD, STEPS, short
from cleaner_rl.train.preflight.witness import Rolled, Trained
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.rows import Graded, View, Views, recovery_view, to_row
from cleaner_rl.train.verl.overrides import overrides
from tests.builders import answered, worked
from tests.train.recipes import values
from tests.train.test_rows import collapsed, graded, rescored

RECIPE = to_recipe(
    values(method="hindsight", budget={"overlong_buffer": 0}, verl={"actor_rollout_ref.rollout.dtype": "float32"})
)


def kept(trajectory: Graded) -> Graded:
    return replace(trajectory, info=replace(trajectory.info, verdict={"kept": True, "advantage": 0.5}))


REPAIRED = kept(rescored(collapsed()))
STORED = [*[REPAIRED] * 10, *(kept(graded(*[worked()] * many, answered())) for many in (1, 2, 3, 4, 5))]
FILLER = 7


def updated(trajectory: Graded, step: int = 1) -> Trained:
    """What an update sees of a trajectory, behind which the witness has put some tokens."""
    row = to_row(trajectory)
    assert row is not None
    ids = [*row.prompt_ids.tolist(), *row.response_ids.tolist()]
    scores = np.append(row.logprobs, np.zeros(FILLER, np.float32))
    mask = [*row.loss_mask.astype(int).tolist(), *[0] * FILLER]
    advantages = 0.5 * np.array(mask, np.float32)
    return Trained(step, ids + ids[-1:] * FILLER, len(row.prompt_ids), mask, scores, scores, advantages)


SEEN = [updated(each, step) for step in (1, 2) for each in STORED]


def red(kept: list[Graded], trained: list[Trained], broken: Iterable[Graded] = ()) -> set[str]:
    rolled = Rolled(*(Counter(tuple(each.ids().tolist()) for each in rows) for rows in (kept, broken)))
    found = [
        *check_rows(kept, trained, rolled, RECIPE),
        check_advantages(kept, trained, RECIPE),
        *check_logprobs(kept, trained, RECIPE),
    ]
    return {each.name for each in found if each.verdict is Verdict.FAILED}


def unscored(trained: Trained) -> Trained:
    """The same row with the log-probs of another context for all that an edit moved."""
    if trained.ids[:-FILLER] != REPAIRED.ids().tolist():
        return trained
    moved = np.append(moved_tokens(REPAIRED)[trained.prompt :], [False] * FILLER)
    return replace(trained, rollout=trained.rollout - moved.astype(np.float32))


FAULTS: dict[str, Callable[[list[Trained]], list[Trained]]] = {
    "masks": lambda seen: [replace(each, mask=[0, *each.mask[:-1]]) for each in seen],
    "ids": lambda seen: [replace(each, ids=[each.ids[0] + 1, *each.ids[1:]]) for each in seen],
    "log-probs": lambda seen: [replace(each, rollout=each.rollout - 1) for each in seen],
    "weights": lambda seen: [replace(each, rollout=each.rollout - (each.step == 2)) for each in seen],
    "re-scoring": lambda seen: [unscored(each) for each in seen],
    "advantages": lambda seen: [replace(each, advantages=-each.advantages) for each in seen],
}


def test_what_is_exact_is_green() -> None:
    assert red(STORED + STORED, SEEN) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_name(name: str) -> None:
    assert name in red(STORED + STORED, FAULTS[name](SEEN))


@pytest.mark.parametrize("name", ["masks", "re-scoring", "weights", "advantages"])
def test_a_fault_turns_nothing_else_red(name: str) -> None:
    assert red(STORED + STORED, FAULTS[name](SEEN)) == {name}


def test_the_view_that_was_drawn_is_looked_at_too() -> None:
    one = replace(RECIPE, purify=replace(RECIPE.purify, views=Views.ONE))
    drawn = [replace(REPAIRED, key=replace(REPAIRED.key, rollout=number)) for number in range(40)]
    shown = [(each, recovery_view(each)) for each in drawn if stored_rows(each, one)[0].view is View.RECOVERY]
    assert 0 < len(shown) < len(drawn)
    for each, raw in shown:
        assert raw is not None
        (row,) = stored_rows(each, one)
        arrived = replace(updated(raw), mask=[*row.loss_mask.astype(int).tolist(), *[0] * FILLER])
        arrived = replace(arrived, advantages=0.5 * np.array(arrived.mask, np.float32))
        assert check_advantages([each], [arrived], one).verdict is Verdict.OK
        wrong = replace(arrived, advantages=-arrived.advantages)
        assert check_advantages([each], [wrong], one).verdict is Verdict.FAILED
        assert check_logprobs([each], [replace(arrived, rollout=arrived.rollout - 1)], one)[0].verdict is Verdict.FAILED


def test_of_a_run_without_an_update_nothing_is_said_to_be_right() -> None:
    found = [
        *check_rows([], [], Rolled(), RECIPE),
        check_advantages([], [], RECIPE),
        *check_logprobs([], [], RECIPE),
        check_template([], lambda _: True),
        check_memory([]),
    ]
    assert {each.verdict for each in found} == {Verdict.SKIPPED}
    assert red(STORED, []) == {"ids"}  # the store says that there was one


def test_a_row_that_never_arrived_is_missed() -> None:
    assert red(STORED + STORED, SEEN[1:]) == {"ids"}


def test_a_fault_that_was_given_a_row_is_found() -> None:
    broken = STORED[-1]
    seen = [updated(each) for each in (REPAIRED, broken)]
    assert red([REPAIRED], seen, [broken]) == {"faults"}
    assert red([REPAIRED, broken], seen, [broken]) == set()  # another one, just like it, is whole


def test_a_shifted_mask_says_nothing_of_the_log_probs_of_what_it_hits() -> None:
    """The rollout has no log-prob of a tool's words; the actor has one."""
    seen = [replace(each, old=np.where(np.array(each.mask, bool), each.old, -5)) for each in SEEN]
    assert red(STORED + STORED, FAULTS["masks"](seen)) == {"masks"}


def test_a_template_that_trims_is_named_with_an_example() -> None:
    trims = check_template(STORED, lambda text: text == text.strip())
    keeps = check_template(STORED, lambda text: True)
    assert keeps.verdict is Verdict.OK
    whole = check_template([graded(answered())], lambda text: False)
    assert whole.verdict is Verdict.FAILED
    assert "100%" in whole.words
    assert trims.figures["turns"] > 0


def test_two_steps_are_tried_loudly_and_without_a_cold_start_that_is_not_there(tmp_path: Path) -> None:
    recipe = to_recipe(values(cold_start={"data.train_files": ["d"]}, run={"folder": str(tmp_path), "steps": 300}))
    tried = short(recipe)
    settings, optimizer = overrides(tried, tmp_path), "actor_rollout_ref.actor.optim"
    assert (settings[f"{optimizer}.lr"], settings[f"{optimizer}.lr_warmup_steps"]) == (LOUD, 0)
    assert (tried.run.steps, settings["trainer.save_freq"], tried.cold_start) == (STEPS, STEPS, None)
    assert tried.name != recipe.name
    assert tried.batch == recipe.batch
    assert tried.budget == recipe.budget


def test_memory_that_is_nearly_all_taken_is_a_warning() -> None:
    tight = replace(SEEN[0], peak_bytes=79 << 30, device_bytes=80 << 30)
    assert check_memory([tight]).verdict is Verdict.WARNING
    assert check_memory([replace(tight, peak_bytes=40 << 30)]).verdict is Verdict.OK


def timed(trajectory: Graded, seconds: float) -> Graded:
    return replace(trajectory, info=replace(trajectory.info, seconds=seconds))


def test_a_sandbox_in_which_calls_take_most_of_a_steps_time_is_red(tmp_path: Path) -> None:
    rows = [REPAIRED, graded(worked(), answered()), graded(answered())]
    with sandbox(to_recipe(values(sandbox={"slots": 1, "environment": "bare"})), tmp_path) as addresses:
        slow = check_sandbox([timed(each, 1e-6) for each in rows], addresses, RECIPE)
        quick = check_sandbox([timed(each, 600) for each in rows], addresses, RECIPE)
    assert (slow.verdict, quick.verdict) == (Verdict.FAILED, Verdict.OK)
    assert "sandbox.slots" in slow.change
    # The failed call that an edit replaced was made too.
    assert quick.figures["calls"] == 3
    assert check_sandbox(rows[2:], [], RECIPE).verdict is Verdict.SKIPPED


def test_disk_is_judged_by_the_checkpoint_that_was_saved(tmp_path: Path) -> None:
    saved = tmp_path / "checkpoints" / "global_step_2"
    saved.mkdir(parents=True)
    with (saved / "model").open("wb") as file:
        file.truncate(8 << 40)  # a hole of eight terabytes
    recipe = to_recipe(values(verl={"trainer.save_freq": 10}))
    assert check_disk(tmp_path, recipe).verdict is Verdict.FAILED


def test_cores_and_time_are_told() -> None:
    many = to_recipe(values(verl={"actor_rollout_ref.rollout.agent.num_workers": 10_000}))
    assert check_cores(many).verdict is Verdict.WARNING
    told = check_time([50.0, 20.0], to_recipe(values(run={"steps": 300})))
    assert told.figures["run_seconds"] == 50 + 299 * 20
    assert "100 min" in told.words


def test_the_page_escapes_what_it_shows_and_says_the_verdict() -> None:
    found = Preflight("<b>", "f", [Finding("ids", Verdict.FAILED, "a < b", "change & go")])
    page = html(found)
    assert "&lt;b&gt;" in page
    assert "a &lt; b" in page
    assert "Not ready" in page
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
