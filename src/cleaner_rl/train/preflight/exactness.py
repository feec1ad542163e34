"""Compares what reached the update with what the store holds: ids, masks, log-probs, and whose rows they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import cast

import numpy as np
import numpy.typing as npt

from cleaner_rl.train.preflight.findings import Finding, Verdict
from cleaner_rl.train.preflight.witness import Rolled, Trained
from cleaner_rl.train.recipe.settings import Recipe, run_folder
from cleaner_rl.train.rows import Graded, GraftLogprobs, TrainRow, View, recovery_view, to_row
from cleaner_rl.train.rows.groups import compared_rows
from cleaner_rl.train.verl.overrides import ESTIMATOR, overrides
from cleaner_rl.train.verl.settings import Dtype, TrainerMode, devices_of

BOUND = {Dtype.FLOAT32: 1e-3, Dtype.BFLOAT16: 0.3, Dtype.FLOAT16: 0.05}
"""The 99th percentile of the difference between a token's log-prob in the rollout and in the actor, at most."""
FACTOR = 5.0
"""How much larger the difference of moved tokens, or of a later step, may be beside that of the others."""
SAME = 1e-4
"""How far an advantage in the update may be from the store's, which has more digits."""
NOTHING = "No row of the update is in the store, so there is nothing to compare."
FEW = 20
"""With fewer tokens no percentile is looked at."""


def check_rows(kept: Sequence[Graded], trained: Sequence[Trained], rolled: Rolled, recipe: Recipe) -> list[Finding]:
    """Say whether the rows that were trained on are those that the store kept, with the same ids and masks.

    Args:
        kept: The whole trajectories of the store that are said to be trained on.
        trained: What the updates were given.
        rolled: All rollouts, and which of them the infrastructure broke.
        recipe: The recipe.
    """
    if not kept and not trained:
        return [Finding(name, Verdict.SKIPPED, NOTHING) for name in ("ids", "masks", "faults")]
    stored = Counter(_ids_and_mask(row) for each in kept for row in stored_rows(each, recipe))
    whole = Counter(ids for ids, _ in stored.elements())
    known = whole.keys() | rolled.broken.keys()
    updated = Counter((ids, tuple(each.mask[: len(ids) - each.prompt])) for each, ids in _found(trained, known))
    arrived = Counter(ids for ids, _ in updated.elements())
    unknown = sum(count for ids, count in arrived.items() if ids not in known)
    missing = (whole - arrived).total()
    masks = sum(count for row, count in updated.items() if row[0] in whole and row not in stored)
    faulty = sum(max(0, arrived[ids] - rolled.whole[ids]) for ids in rolled.broken)
    figures = {"stored": float(stored.total()), "trained": float(updated.total())}
    return [
        _finding(
            "ids",
            not unknown and not missing,
            f"All {stored.total()} rows of the store reached the update, id by id.",
            f"{unknown} of {updated.total()} rows in the update have ids that the store doesn't know, and "
            f"{missing} rows of the store are missing.",
            "The rows change between the rollout and the update: look for another agent loop, sampler or "
            "post-processing in the recipe's `verl` settings.",
            figures,
        ),
        _finding(
            "masks",
            not masks,
            "Every loss mask in the update is the store's.",
            f"{masks} rows in the update have another loss mask than the store.",
            "The update would learn tokens that the model didn't write, or miss some that it did. Don't train.",
            {"rows": float(masks)},
        ),
        _finding(
            "faults",
            not faulty,
            "No row of the update comes from a rollout that the infrastructure broke.",
            f"{faulty} rows in the update come from rollouts that the infrastructure broke.",
            "A fault is no failure of the model. Don't train; report this with the run's folder.",
            {"rows": float(faulty)},
        ),
    ]


def check_advantages(kept: Iterable[Graded], trained: Iterable[Trained], recipe: Recipe) -> Finding:
    """Say whether each row in the update has the advantage that its rollout has in the store."""
    if overrides(recipe, run_folder(recipe))["algorithm.adv_estimator"] != ESTIMATOR:
        words = "The recipe's `verl` settings name another estimator, so the store doesn't know the advantages."
        return Finding("advantages", Verdict.SKIPPED, words)
    stored: dict[tuple[int, ...], set[float]] = defaultdict(set)
    for row in (row for each in kept for row in stored_rows(each, recipe)):
        stored[row_ids(row)].add(cast("float", row.advantage))
    # Rollouts of several groups can have the same ids.
    apart = [
        min(abs(own - float(row.advantages[np.argmax(np.abs(row.advantages))])) for own in stored[ids])
        for row, ids in _found(trained, stored.keys())
        if ids in stored
    ]
    if not apart:
        return Finding("advantages", Verdict.SKIPPED, NOTHING)
    wrong = sum(each > SAME for each in apart)
    return _finding(
        "advantages",
        not wrong,
        "Every row in the update has the advantage of its rollout.",
        f"{wrong} of {len(apart)} rows in the update have another advantage than their rollout.",
        "Look for another estimator or sampler in the recipe's `verl` settings. Don't train.",
        {"rows": float(wrong), "largest": max(apart)},
    )


def _advantage(trajectory: Graded) -> float:
    """Return the advantage of a trajectory that was trained on."""
    assert trajectory.info.verdict is not None
    return cast("float", trajectory.info.verdict["advantage"])


def stored_rows(trajectory: Graded, recipe: Recipe) -> list[TrainRow]:
    """Return the row of a trajectory that was trained on, in the view that it was trained on, or one for each view."""
    config = recipe.row_config()
    made = to_row(trajectory, config.logprobs)
    assert made is not None
    return compared_rows(trajectory, made, _advantage(trajectory), config)


def row_ids(row: TrainRow) -> tuple[int, ...]:
    """Return all ids of a row."""
    return (*row.prompt_ids.tolist(), *row.response_ids.tolist())


def _ids_and_mask(row: TrainRow) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids of a row, and the loss mask of its response."""
    return row_ids(row), tuple(row.loss_mask.astype(int).tolist())


def _moved(trajectory: Graded, row: TrainRow) -> npt.NDArray[np.bool_]:
    """Return which tokens of a row's response were moved; the row is of this trajectory."""
    shown = recovery_view(trajectory) if row.view is View.RECOVERY else trajectory
    assert shown is not None
    return moved_tokens(shown)[len(row.prompt_ids) :]


def _found(trained: Iterable[Trained], known: Set[tuple[int, ...]]) -> Iterator[tuple[Trained, tuple[int, ...]]]:
    """Yield each row with its ids, without the tokens that the witness has put behind them."""
    lengths = sorted({len(ids) for ids in known}, reverse=True)
    for row in trained:
        ids = tuple(row.ids)
        own = (ids[:end] for end in lengths if end <= len(ids) and set(ids[end:]) <= {ids[end - 1]})
        yield row, next((each for each in own if each in known), ids)


def check_logprobs(kept: Sequence[Graded], trained: Sequence[Trained], recipe: Recipe) -> list[Finding]:
    """Say how far the rollout's log-probs are from the actor's: unmoved tokens, moved ones, and after an update."""
    devices = devices_of(recipe)
    if devices.mode is not TrainerMode.SYNC:
        words = f"trainer.v1.trainer_mode is {devices.mode}: rollouts may be of older weights than the update."
        return [Finding(name, Verdict.SKIPPED, words) for name in ("log-probs", "re-scoring", "weights")]
    # Which tokens are learnt is the store's word: a wrong mask in the update is a finding of its own.
    stored = {row_ids(row): (_moved(each, row), row.loss_mask) for each in kept for row in stored_rows(each, recipe)}
    apart: dict[tuple[int, bool], list[float]] = defaultdict(list)
    for row, ids in _found(trained, stored.keys()):
        if ids not in stored:
            continue
        moved, learnt = stored[ids]
        gaps = np.abs(row.rollout - row.old)[: len(moved)]
        for flag in (False, True):
            apart[row.step, flag] += gaps[learnt & (moved == flag)].tolist()
    if not apart:
        return [Finding(name, Verdict.SKIPPED, NOTHING) for name in ("log-probs", "re-scoring", "weights")]
    first, last = min(step for step, _ in apart), max(step for step, _ in apart)
    bound = BOUND[devices.dtype]
    base = _p99(apart[first, False])
    figures = {**_percentiles("unmoved", apart[first, False]), "bound": bound}
    return [
        _finding(
            "log-probs",
            base <= bound,
            f"Rollout and actor agree about the tokens of step {first}: 99 of 100 within {base:.2g} (bound {bound:g}).",
            f"Rollout and actor disagree: the 99th percentile of step {first} is {base:.2g}, the bound for "
            f"{devices.dtype} is {bound:g}.",
            "Use the same dtype and attention in both (rollout.dtype, attn_implementation), and leave out quantisation "
            "and changes of the sampling distribution (temperature, top_p, penalties) in the engine.",
            figures,
        ),
        _moved_finding(apart[first, True], base, bound, recipe),
        _finding(
            "weights",
            last == first or _p99(apart[last, False]) <= max(bound, FACTOR * base),
            f"The engine samples step {last} with the weights of step {first}'s update.",
            f"At step {last} the 99th percentile is {_p99(apart[last, False]):.2g}, at step {first} it was {base:.2g}: "
            "the engine doesn't have the actor's new weights.",
            "Look for a failed weight transfer in verl's log; don't train.",
            _percentiles("unmoved", apart[last, False]),
        ),
    ]


def _moved_finding(gaps: Sequence[float], base: float, bound: float, recipe: Recipe) -> Finding:
    if len(gaps) < FEW:
        words = f"Only {len(gaps)} tokens of these steps were moved by an edit: too few to compare."
        return Finding("re-scoring", Verdict.SKIPPED, words)
    if recipe.purify.graft_logprobs is GraftLogprobs.SAMPLED:
        words = "purify.graft_logprobs is sampled: moved tokens keep the log-probs of their first context."
        return Finding("re-scoring", Verdict.SKIPPED, words, figures=_percentiles("moved", gaps))
    return _finding(
        "re-scoring",
        _p99(gaps) <= max(bound, FACTOR * base),
        f"Tokens that an edit moved were scored again: 99 of 100 within {_p99(gaps):.2g} of the actor's.",
        f"Tokens that an edit moved have log-probs of another context: their 99th percentile is {_p99(gaps):.2g}.",
        "The engine didn't score edited turns again: see that prompt log-probs are on (docs/train.md).",
        _percentiles("moved", gaps),
    )


def check_template(kept: Iterable[Graded], keeps: Callable[[str], bool]) -> Finding:
    """Say whether the chat template leaves the model's own words as they are; `keeps` tells it of a text."""
    texts = {turn.text for each in kept for turn in each.turns}
    if not texts:
        return Finding("chat template", Verdict.SKIPPED, NOTHING)
    changed = [text for text in texts if not keeps(text)]
    share = len(changed) / len(texts)
    example = f" One of them begins with {changed[0][:60]!r}." if changed else ""
    return _finding(
        "chat template",
        not changed,
        f"The chat template renders all {len(texts)} different turns as they were sampled.",
        f"The chat template changes {share:.0%} of the turns when it renders them again (it trims or rewrites them). "
        f"Training keeps them as sampled, but behind a chat API the model sees another history.{example}",
        "Give the model a template that puts the assistant's content in unchanged.",
        {"turns": float(len(texts)), "changed": share},
    )


def _finding(
    name: str, holds: bool, good: str, bad: str, change: str, figures: dict[str, float] | None = None
) -> Finding:
    if holds:
        return Finding(name, Verdict.OK, good, figures=figures or {})
    return Finding(name, Verdict.FAILED, bad, change, figures or {})


def moved_tokens(trajectory: Graded) -> npt.NDArray[np.bool_]:
    """Return which tokens an edit put into another context than they were sampled in."""
    return np.concatenate(
        [np.full(len(placed.span), placed.moved and placed.owner.sampled) for placed in trajectory.placed()]
    )


def _p99(gaps: Sequence[float]) -> float:
    return float(np.percentile(gaps, 99)) if gaps else 0.0


def _percentiles(name: str, gaps: Sequence[float]) -> dict[str, float]:
    if not gaps:
        return {f"{name}_tokens": 0.0}
    found = {f"{name}_p{point}": float(np.percentile(gaps, point)) for point in (50, 90, 99, 100)}
    return {f"{name}_tokens": float(len(gaps)), **found}
