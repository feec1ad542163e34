"""What every adapter to a trainer must keep of the rollouts that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cleaner_rl.purify import PurifyConfig, PurifyScope, purify
from cleaner_rl.resample import advantages
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import (
    Key,
    RepairMode,
    Scores,
    StopReason,
    TokenSpan,
    Trajectory,
    Turn,
    first_attempt_tally,
    token_span,
)

Rollout = Trajectory[TokenSpan]
ROLLOUTS = 4
"""Rollouts of each group that the contract gives, faults included."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One sequence as your trainer's loss was given it, without padding."""

    ids: Sequence[int]
    """Prompt and response."""
    mask: Sequence[int]
    """1 where a token of the response is in the loss, else 0."""
    logprobs: Sequence[float]
    """The rollout's log-probs of the response, as your importance correction takes them."""
    advantage: float


class TrainerContract:
    """Subclass it, name the subclass `Test…`, and give `train`."""

    delta: float = 1e-6
    """What your trainer adds to a group's standard deviation before it divides by it."""

    def train(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[Trained]]:
        """Give the groups, which have `ROLLOUTS` rollouts each, to your adapter as one batch, without RoC.

        Return for each group what your trainer's loss was given. Rows of padding, with nothing but zeros in their mask,
        may stay in.
        """
        raise NotImplementedError

    def test_ids_and_masks_are_those_of_the_rollout(self) -> None:
        """Nothing is decoded and encoded again, and what a tool said is not in the loss."""
        for rollouts, rows in self._trained(_mixed("a"), _mixed("b")):
            for rollout, row in self._pairs(rollouts, rows):
                length = len(rollout.prompt)
                assert list(row.mask) == rollout.loss_mask()[length:].astype(int).tolist(), (
                    f"the loss mask of {rollout.key} is {list(row.mask)}, not that of its trajectory"
                )

    def test_logprobs_are_those_of_the_rollout(self) -> None:
        """Each sampled token keeps its own."""
        for rollouts, rows in self._trained(_mixed("a")):
            self._check_logprobs(rollouts, rows)

    def test_moved_tokens_have_their_rescored_logprobs(self) -> None:
        """An edit moved them: the log-probs at which they were sampled belong to another context."""
        edited = _rescored(_purified(_rollout("a", 0, 1.0, failing=True)))
        for rollouts, rows in self._trained([edited, *_mixed("a")[1:]]):
            self._check_logprobs(rollouts, rows)

    def test_advantages_compare_the_rollouts_of_a_group(self) -> None:
        """Reward minus the mean, over the standard deviation; groups don't mix."""
        groups = [_rewarded("a", (1.0, -1.0, -1.0, -1.0)), _rewarded("b", (1.0, 1.0, 1.0, -1.0))]
        for rollouts, rows in self._trained(*groups):
            self._check_advantages(rollouts, rows)

    def test_a_penalty_on_failed_calls_survives_their_repair(self) -> None:
        """Rewards of several weighted graders are those of the raw rollout; its repaired tokens get the advantage."""
        rights = (True, True, False, False), (True, True, True, True)
        groups = [
            [_penalised(task, number, right[number]) for number in range(ROLLOUTS)]
            for task, right in zip("ab", rights, strict=True)
        ]
        for rollouts, rows in self._trained(*groups):
            self._check_advantages(rollouts, rows)
            self._check_logprobs(rollouts, rows)

    def test_a_fault_is_in_no_row_and_no_statistic(self) -> None:
        """Infrastructure that broke teaches the model nothing."""
        faults = [
            replace(_rollout("a", 1, -1.0), stop_reason=StopReason.FAULT),
            replace(_rollout("a", 1, -1.0), reward=None),
            replace(_rollout("a", 1, -1.0), stop_reason=StopReason.DROPPED),
            _purified(_rollout("a", 1, -1.0, failing=True)),
        ]
        for fault in faults:
            good = _rewarded("a", (1.0, 0.0, -1.0, -1.0))
            for rollouts, rows in self._trained([good[0], fault, *good[2:]]):
                usable = [rollout for rollout in rollouts if rollout is not fault]
                self._pairs(usable, rows)
                self._check_advantages(usable, rows)

    def test_every_usable_rollout_of_a_group_is_trained_on(self) -> None:
        """A group is trained on whole, in one batch."""
        for rollouts, rows in self._trained(_mixed("a"), _mixed("b")):
            assert len(self._pairs(rollouts, rows)) == len(rollouts)

    def _trained(self, *groups: Sequence[Rollout]) -> list[tuple[Sequence[Rollout], list[Trained]]]:
        found = self.train(groups)
        assert len(found) == len(groups), f"{len(groups)} groups were given, and {len(found)} trained on"
        return [(group, [row for row in rows if any(row.mask)]) for group, rows in zip(groups, found, strict=True)]

    def _pairs(self, rollouts: Sequence[Rollout], rows: Sequence[Trained]) -> list[tuple[Rollout, Trained]]:
        """Each rollout with its row, found by its ids."""
        by_ids = {tuple(row.ids): row for row in rows}
        for rollout in rollouts:
            assert tuple(rollout.ids().tolist()) in by_ids, f"no row in the loss has the ids of {rollout.key}"
        assert len(rows) == len(rollouts), f"{len(rollouts)} rollouts can be trained on, and {len(rows)} rows were"
        return [(rollout, by_ids[tuple(rollout.ids().tolist())]) for rollout in rollouts]

    def _check_logprobs(self, rollouts: Sequence[Rollout], rows: Sequence[Trained]) -> None:
        for rollout, row in self._pairs(rollouts, rows):
            mask = np.array(row.mask, bool)
            expected = rollout.logprobs()[len(rollout.prompt) :][mask]
            found = np.array(row.logprobs)[mask]
            assert np.allclose(found, expected, rtol=1e-6), (
                f"the log-probs of {rollout.key} are {found.tolist()}, not {expected.tolist()}"
            )

    def _check_advantages(self, rollouts: Sequence[Rollout], rows: Sequence[Trained]) -> None:
        expected = advantages([rollout.reward or 0.0 for rollout in rollouts], self.delta)
        for (rollout, row), wanted in zip(self._pairs(rollouts, rows), expected, strict=True):
            assert abs(row.advantage - wanted) <= 1e-5 * abs(wanted), (
                f"the advantage of {rollout.key} is {row.advantage}, not {wanted}"
            )


def _mixed(task: str) -> list[Rollout]:
    """A right and three wrong rollouts, one of them with a failed call."""
    return [_rollout(task, number, 1.0 if number == 0 else -1.0, failing=number == 1) for number in range(ROLLOUTS)]


def _rewarded(task: str, rewards: Sequence[float]) -> list[Rollout]:
    return [_rollout(task, number, reward) for number, reward in enumerate(rewards)]


def _penalised(task: str, number: int, right: bool) -> Rollout:
    """A rollout rewarded for its answer, and 0.25 less for each failed call; odd ones have one, which is repaired."""
    failing = number % 2 == 1
    sampled = _rollout(task, number, 1.0 if right else -1.0, failing=failing)
    rewarded = replace(sampled, reward=(1.0 if right else -1.0) - 0.25 * first_attempt_tally(sampled).failed)
    return _rescored(_purified(rewarded)) if failing else rewarded


def _rollout(task: str, number: int, reward: float, *, failing: bool = False) -> Rollout:
    """A rollout with a call, its result and an answer; no two have the same tokens."""
    first = 10 * number + (100 if task == "b" else 0)
    wrong = (_call(first + 5, "print(y)", Status.ERROR),) if failing else ()
    answer = Turn(token_span("two", [first + 4], logprobs=[-0.25]))
    return Trajectory(
        token_span("1 + 1?", [201, 202, 203 + (task == "b")]),
        (*wrong, _call(first + 1, "print(1 + 1)", Status.OK), answer),
        Key("contract", 1, task, number),
        reward=reward,
        success=reward > 0,
        stop_reason=StopReason.ANSWERED,
    )


def _call(first: int, code: str, status: Status) -> Turn[TokenSpan]:
    return Turn(
        reasoning=token_span("I add.", [first], logprobs=[-0.5 - first / 1024]),
        action=token_span(code, [first + 1], logprobs=[-0.75 - first / 1024]),
        observation=token_span("2", [first + 2]),
        calls=(ToolCall("python", {"code": code}, code, 0, len(code), kind=CallKind.PYTHON),),
        results=(ToolResult(status, "2"),),
    )


def _purified(rollout: Rollout) -> Rollout:
    """The rollout after hindsight, and before anybody re-scored it."""
    return purify(rollout, PurifyConfig(scope=PurifyScope.ALL), RepairMode.HINDSIGHT)


def _rescored(rollout: Rollout) -> Rollout:
    def scored(span: TokenSpan) -> TokenSpan:
        if span.sampled is None:
            return span
        return replace(span, rescored=Scores(span.sampled.logprobs - np.float32(1.0), span.sampled.version))

    return replace(rollout, turns=tuple(turn.with_spans(scored) for turn in rollout.turns))
