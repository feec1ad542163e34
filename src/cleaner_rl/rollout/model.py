"""A policy and its chat as one: turns in, turns out. The loop needs nothing else of a model.

- `TokenModel`: exact ids all the way, for training and for evaluation.
- `endpoint.ChatModel`: text over somebody's chat API, for evaluation only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from cleaner_rl.purify import Draft, SampleRequest, gap_gate, refuse_wide_gaps, rescore
from cleaner_rl.purify.live import Gate
from cleaner_rl.purify.rescore import Score
from cleaner_rl.rollout.chat import Chat
from cleaner_rl.rollout.policy import EngineFaultError, Finish, Policy, Sampling
from cleaner_rl.tasks import Message
from cleaner_rl.tools import CallFormat, ToolSet
from cleaner_rl.trajectory import Ids, Key, Scores, TokenSpan, Trajectory, Turn, read_tokens
from cleaner_rl.trajectory.spans import S


class Model(Protocol[S]):
    """What the loop asks of a model."""

    @property
    def window(self) -> int:
        """The longest context, answer included, in the unit of its spans."""
        ...

    @property
    def unit(self) -> int:
        """How much of that unit a token is: 1, or for text a few characters."""
        ...

    def begin(self, messages: Sequence[Message]) -> S:
        """The first prompt."""
        ...

    async def sample(self, request: SampleRequest[S]) -> Draft[S]:
        """One turn after a context. Raises `EngineFaultError`."""
        ...

    def written(self, text: str) -> Draft[S]:
        """A turn that is put into the model's mouth."""
        ...

    def observe(self, turn: Turn[S], results: Sequence[str]) -> S:
        """What the next turn is sampled after: the results of the turn's calls in words, as the chat frames them."""
        ...

    def answer(self, turn: Turn[S]) -> str:
        """What the turn says, without its end-of-turn token: what a grader reads."""
        ...

    def gate(self, key: Key, max_gap: float | None) -> Gate[S] | None:
        """For `repair`: gives a correction its log-probs before it is committed, and refuses it above this gap."""
        ...

    async def rescored(self, trajectory: Trajectory[S], max_gap: float | None) -> Trajectory[S]:
        """Log-probs for whatever edits moved; edits in hindsight above this gap are undone."""
        ...


class RescoringRefusedError(ValueError):
    """Log-probs that were sampled and log-probs that were scored would be of two distributions."""


class TokenModel:
    """A policy that speaks ids, and the chat that makes turns of them."""

    unit = 1

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        call_format: CallFormat,
        *,
        window: int,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    ) -> None:
        self.policy, self.chat, self.window, self.sampling = policy, chat, window, sampling
        self._call_format = call_format

    @property
    def tools(self) -> ToolSet:
        """What the model is told of."""
        return self.chat.tools

    def begin(self, messages: Sequence[Message]) -> TokenSpan:
        """The first prompt, by the model's own template."""
        return self.chat.prompt(messages)

    async def sample(self, request: SampleRequest[TokenSpan]) -> Draft[TokenSpan]:
        """One turn; its ids are those that the engine gave, and are never rendered again."""
        completion = await self.policy.sample(
            request.context.ids(),
            max_tokens=request.max_length,
            seed=request.seed,
            sampling=self.sampling,
            stop_ids=self.chat.stop_ids,
            request=request_name(request.context.key),
        )
        scores = None if completion.logprobs_T is None else Scores(completion.logprobs_T, completion.version)
        return Draft(self._read(TokenSpan("", completion.ids_T, scores)), complete=completion.finish is Finish.STOP)

    def written(self, text: str) -> Draft[TokenSpan]:
        """A turn that is put into the model's mouth: without log-probs, because nobody sampled it."""
        return Draft(self._read(self.chat.written(text)))

    def observe(self, turn: Turn[TokenSpan], results: Sequence[str]) -> TokenSpan:
        """The results, framed by the template; a turn that lacks its end-of-turn token gets it here."""
        return self.chat.observation(_sampled(turn), results)

    def answer(self, turn: Turn[TokenSpan]) -> str:
        """What the turn says, without its end-of-turn token."""
        return self.chat.words(_sampled(turn))

    def gate(self, key: Key, max_gap: float | None) -> Gate[TokenSpan]:
        """Re-scores a correction at the best moment: what stands before it is cached, and the next turn needs it."""
        score = self._scorer(key)
        measured = None if max_gap is None else gap_gate(score, max_gap)

        async def gate(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
            with _single_fault():
                return await (rescore(candidate, score) if measured is None else measured(candidate))

        return gate

    async def rescored(self, trajectory: Trajectory[TokenSpan], max_gap: float | None) -> Trajectory[TokenSpan]:
        """Log-probs for whatever edits moved and nobody has scored yet."""
        score = self._scorer(trajectory.key)
        with _single_fault():
            if max_gap is None:
                return await rescore(trajectory, score)
            return await refuse_wide_gaps(trajectory, score, max_gap)

    def _read(self, span: TokenSpan) -> Turn[TokenSpan]:
        return read_tokens(span, self.chat.vocabulary, self._call_format, self.tools, self.chat.stop_ids)

    def _scorer(self, key: Key) -> Score:
        if not self.sampling.exact:
            raise RescoringRefusedError(
                f"re-scoring is refused for {self.sampling}: log-probs are scored at temperature 1 over all tokens, so "
                "beside sampled ones they would be of another distribution. Sample at temperature 1, top-p 1 and "
                "without top-k, or leave moved tokens without log-probs and don't train on them"
            )

        async def score(prefix_T: Ids, suffix_T: Ids) -> Scores:
            return await self.policy.score(prefix_T, suffix_T, request=request_name(key))

        return score


@contextmanager
def _single_fault() -> Iterator[None]:
    """Requests that run side by side fail as a group; for the caller the engine broke once."""
    try:
        yield
    except ExceptionGroup as group:
        faults = group.subgroup(EngineFaultError)
        if faults is None:
            raise
        raise EngineFaultError(str(faults.exceptions[0])) from group


def request_name(key: Key) -> str:
    """The trajectory's name for whoever routes its requests."""
    return f"{key.run}/{key.step}/{key.task}/{key.rollout}"


def _sampled(turn: Turn[TokenSpan]) -> Ids:
    """The ids that the model sampled."""
    return turn.reasoning.ids if turn.action is None else np.concatenate([turn.reasoning.ids, turn.action.ids])
