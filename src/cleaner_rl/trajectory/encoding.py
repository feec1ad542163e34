"""Text to tokens, for supervised training only: the one place where text is encoded, and nothing calls it by itself.

Each span is encoded alone, so that masks fall on its borders. A tokenizer may have split the whole text elsewhere, and
no model sampled these ids: there are no log-probs, and the result is of no use for reinforcement learning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleaner_rl.trajectory.spans import TextSpan, TokenSpan, token_span
from cleaner_rl.trajectory.trajectory import Trajectory
from cleaner_rl.trajectory.turns import Edit, Turn


def encode(trajectory: Trajectory[TextSpan], tokenize: Callable[[str], Sequence[int]]) -> Trajectory[TokenSpan]:
    """Return the same trajectory, including its edits, with the ids that `tokenize` gives for each span."""

    def span(text: TextSpan) -> TokenSpan:
        return token_span(text.text, tokenize(text.text))

    def turn(each: Turn[TextSpan]) -> Turn[TokenSpan]:
        return Turn(
            span(each.reasoning),
            None if each.action is None else span(each.action),
            None if each.observation is None else span(each.observation),
            each.calls,
            each.results,
            each.attempt,
            None if each.edit is None else edit(each.edit),
        )

    def edit(each: Edit[TextSpan]) -> Edit[TokenSpan]:
        original = tuple(turn(one) for one in each.original)
        rest = (each.similarity, each.measure, each.refusal, each.stale, each.accepted_by)
        return Edit(each.mode, each.kind, original, *rest)

    return Trajectory(
        span(trajectory.prompt),
        tuple(turn(each) for each in trajectory.turns),
        trajectory.key,
        trajectory.reward,
        trajectory.success,
        trajectory.stop_reason,
        trajectory.info,
    )
