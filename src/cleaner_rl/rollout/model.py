"""An engine and its chat renderer as one: turns in, turns out. The loop needs nothing else of a model.

- `TokenModel`: exact ids all the way, for training and for evaluation.
- `endpoint.ChatModel`: text over somebody's chat API, for evaluation only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from cleaner_rl.purify import Draft, Gate, SampleRequest, Score, gap_gate, refuse_wide_gaps, rescore
from cleaner_rl.rollout.chat_renderer import ChatRenderer
from cleaner_rl.rollout.engine import Engine, EngineFaultError, Finish, Sampling
from cleaner_rl.rollout.templates import Tokenizer
from cleaner_rl.tasks import Message, Prompt
from cleaner_rl.tools import CallFormat, ToolSet, call_format
from cleaner_rl.trajectory import Ids, Key, S, Scores, TokenSpan, Trajectory, Turn, read_tokens


class Model(Protocol[S]):
    """The interface of a model, as the agent loop uses it."""

    @property
    def window(self) -> int:
        """Return the longest context, including the answer, in the unit of its spans."""
        ...

    @property
    def unit(self) -> int:
        """Return how many of these units a token has: 1, or for text a few characters."""
        ...

    def begin(self, messages: Sequence[Message]) -> S:
        """Return the first prompt."""
        ...

    async def sample(self, request: SampleRequest[S]) -> Draft[S]:
        """Sample one turn after a context. Raises `EngineFaultError`."""
        ...

    def written(self, text: str) -> Draft[S]:
        """Return a turn with this text, as if the model had sampled it: a prefilled turn."""
        ...

    def observe(self, turn: Turn[S], results: Sequence[str]) -> S:
        """Return what precedes the next turn: the results of the turn's calls as text, framed by the chat template."""
        ...

    def answer(self, turn: Turn[S]) -> str:
        """Return the text of the turn without its end-of-turn token: what a grader reads."""
        ...

    def gate(self, key: Key, max_logprob_gap: float | None) -> Gate[S] | None:
        """Return a gate for `repair`, which re-scores a correction before it is committed, and refuses it above this
        gap.
        """
        ...

    async def rescored(self, trajectory: Trajectory[S], max_logprob_gap: float | None) -> Trajectory[S]:
        """Re-score all tokens that edits moved; edits in hindsight above this gap are undone."""
        ...


class RescoringRefusedError(ValueError):
    """Sampled and re-scored log-probs would be of two different distributions."""


class TokenModel:
    """Makes turns of an engine's ids with a chat renderer; ids are never decoded and encoded again."""

    unit = 1

    def __init__(
        self,
        engine: Engine,
        chat: ChatRenderer,
        call_format: CallFormat,
        *,
        window: int,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    ) -> None:
        self.engine, self.chat, self.window, self.sampling = engine, chat, window, sampling
        self._call_format = call_format

    @property
    def tools(self) -> ToolSet:
        """Return the tools that the prompt describes."""
        return self.chat.tools

    @classmethod
    def for_prompt(
        cls,
        engine: Engine,
        tokenizer: Tokenizer,
        prompt: Prompt,
        *,
        window: int,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        template: Mapping[str, object] | None = None,
        renderer: str = "",
    ) -> TokenModel:
        """Return the model for a prompt: its tools in the tokenizer's chat template, its calls in the prompt's format.

        `template`: options of the chat template, such as `{"enable_thinking": False}`. `renderer`: a template of the
        package `renderers`, in place of the tokenizer's own.
        """
        chat = ChatRenderer.for_prompt(tokenizer, prompt, options=template, family=renderer)
        return cls(engine, chat, call_format(prompt.call_format), window=window, sampling=sampling)

    def served_by(self, engine: Engine, sampling: Sampling, window: int) -> TokenModel:
        """Return the same chat over another engine, sampled from in another way."""
        return TokenModel(engine, self.chat, self._call_format, window=window, sampling=sampling)

    def begin(self, messages: Sequence[Message]) -> TokenSpan:
        """Return the first prompt, by the model's own template."""
        return self.chat.prompt(messages)

    async def sample(self, request: SampleRequest[TokenSpan]) -> Draft[TokenSpan]:
        """Sample one turn; its ids are those that the engine returned, and are never rendered again."""
        with _faults():
            completion = await self.engine.sample(
                request.context.ids(),
                max_tokens=request.max_length,
                seed=request.seed,
                sampling=self.sampling,
                stop_ids=self.chat.stop_ids,
                request=str(request.context.key),
            )
        if len(completion.ids_T) > request.max_length:
            raise EngineFaultError(
                f"the engine returned {len(completion.ids_T)} tokens where at most {request.max_length} were asked for"
            )
        scores = None if completion.logprobs_T is None else Scores(completion.logprobs_T, completion.version)
        return Draft(self._read(TokenSpan("", completion.ids_T, scores)), complete=completion.finish is Finish.STOP)

    def written(self, text: str) -> Draft[TokenSpan]:
        """Return a prefilled turn: it has no log-probs, because it was not sampled."""
        return Draft(self._read(self.chat.written(text)))

    def observe(self, turn: Turn[TokenSpan], results: Sequence[str]) -> TokenSpan:
        """Return the results, framed by the template; a turn that lacks its end-of-turn token gets it here."""
        return self.chat.observation(_sampled(turn), results, [call.name for call in turn.calls])

    def answer(self, turn: Turn[TokenSpan]) -> str:
        """Return the text of the turn without its end-of-turn token."""
        return self.chat.words(_sampled(turn))

    def gate(self, key: Key, max_logprob_gap: float | None) -> Gate[TokenSpan]:
        """Return a gate that re-scores a correction while its prefix is cached, which the next turn needs anyway."""
        score = self._scorer(key)
        measured = None if max_logprob_gap is None else gap_gate(score, max_logprob_gap)

        async def gate(candidate: Trajectory[TokenSpan]) -> Trajectory[TokenSpan] | None:
            with _single_fault():
                return await (rescore(candidate, score) if measured is None else measured(candidate))

        return gate

    async def rescored(self, trajectory: Trajectory[TokenSpan], max_logprob_gap: float | None) -> Trajectory[TokenSpan]:
        """Re-score the tokens that edits moved and that have no log-probs yet."""
        score = self._scorer(trajectory.key)
        with _single_fault():
            if max_logprob_gap is None:
                return await rescore(trajectory, score)
            return await refuse_wide_gaps(trajectory, score, max_logprob_gap)

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
            with _faults():
                return await self.engine.score(prefix_T, suffix_T, request=str(key))

        return score


@contextmanager
def _faults() -> Iterator[None]:
    """Whatever an engine raises ends one rollout, as a fault, and not all of them."""
    try:
        yield
    except EngineFaultError:
        raise
    except Exception as error:
        raise EngineFaultError(f"the engine raised {type(error).__name__}: {error}") from error


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


def _sampled(turn: Turn[TokenSpan]) -> Ids:
    """The ids that the model sampled."""
    return turn.reasoning.ids if turn.action is None else np.concatenate([turn.reasoning.ids, turn.action.ids])
