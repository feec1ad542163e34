"""Sessions around those of another OpenEnv factory, whose traces come out purified.

When a trainer asks for the trace of a session, the session is graded first, since only right rollouts are repaired and
masked unless the settings say otherwise. `verify` then gives the same grade again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

from openenv.core.harness import (
    ResourceSession,
    ResourceSessionFactory,
    TrainableSession,
    TrainingTrace,
    VerifyResult,
)

from cleaner_rl.logs import Reading, purify_log
from cleaner_rl.purify import (
    ExecuteCall,
    LeftAlone,
    PurifyScope,
    Reason,
    Refusal,
    RepairConfig,
    ReplayFaultError,
    ReplayVerdict,
    refuse_wide_gaps,
    rescore,
    verify_by_replay,
)
from cleaner_rl.rollout import EngineFaultError
from cleaner_rl.rollout.engines import Address, VllmEngine, tokenizer_of
from cleaner_rl.tools import CallKind, Status, ToolCall, ToolResult, call_format
from cleaner_rl.train.openenv.traces import (
    LEFT_ALONE,
    TraceReader,
    UnreadableTraceError,
    messages_of,
    reply,
    write_trace,
)
from cleaner_rl.train.record import RunFolder
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import (
    Ids,
    Key,
    RolloutInfo,
    Scores,
    StopReason,
    Trajectory,
    Turn,
    Vocabulary,
    token_span,
)

OpenFresh: TypeAlias = Callable[[Any, int | None], AbstractContextManager[Callable[[ToolCall], str]]]
"""Opens a fresh environment for a task and a seed. What it gives runs a call, and returns what the harness would have
shown to the model."""
PROGRAMS = {CallKind.PYTHON, CallKind.SHELL}


class Kept(StrEnum):
    """Why a failed turn was not repaired, where hindsight or the warrant of logs didn't say it."""

    UNPLACED = "unplaced"
    """The harness read other calls than the call format does, so it isn't known where in the turn they begin."""


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """Settings of `CleanerSessionFactory`. They are data, so that a trainer can send them to another process."""

    tokenizer: str
    """Folder or name of the model's tokenizer, which is asked for no more than the text of each token."""
    engine: str
    """Address of the engine that samples (vLLM's token route): it scores the tokens that a repair moved."""
    call_format: str = "hermes"
    """How the model writes its calls."""
    repair: RepairConfig | None = RepairConfig()  # noqa: RUF009 - frozen
    """How a correction enters the history; None repairs nothing."""
    replay: OpenFresh | None = None
    """How to run calls again. Without it, a failed program is never repaired: what it did before it failed isn't known.
    With it, a repair stays if all calls of the repaired rollout give again what the harness had shown."""
    mask_failed: bool = True
    """Whether failed turns that were not repaired are left out of the loss."""
    scope: PurifyScope = PurifyScope.SUCCESSFUL
    """Which rollouts are repaired and masked: only those that solved the task, or all."""
    threshold: float = 1.0
    """The reward from which on a rollout has solved its task."""
    max_logprob_gap: float | None = None
    """Refuse a repair whose moved tokens lose more log-prob than this on average; None refuses no repair."""
    python_tools: tuple[str, ...] = ()
    """Names of tools that run Python, beside the usual ones."""
    folder: str | None = None
    """Folder for a store of all rollouts, which `cleaner view` opens; None: nothing is written."""
    name: str = "openenv"
    """Name of the run in its store."""


class CleanerSessionFactory(ResourceSessionFactory["CleanerSession"]):  # type: ignore[misc]
    """Makes the sessions of another factory, whose traces come out purified.

    Args:
        make: Makes the other factory; its sessions must give a `TrainingTrace`.
        config: What is done with the traces.
        options: Given to `make`, as a trainer gives them (`sampling`).

    Example:
        ```python
        worker = HarnessRolloutWorker(
            harness_session_factory=partial(CleanerSessionFactory, make_sessions, CaptureConfig(model, engine)),
            ...
        )
        ```
    """

    def __init__(self, make: Callable[..., Any], config: CaptureConfig, **options: Any) -> None:
        temperature = (options.get("sampling") or {}).get("temperature", 1.0)
        if config.repair is not None and temperature != 1.0:
            raise ValueError(
                f"temperature={temperature}: moved tokens are scored at temperature 1, so rollouts must be sampled so; "
                "set it to 1, or give CaptureConfig(repair=None)"
            )
        self._factory = make(**options)
        self._config = config
        self._record = RunFolder(config.folder, config.name)
        self._rollouts: Counter[tuple[str, int]] = Counter()

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> CleanerSession:
        """Create one session around one of the other factory."""
        session = self._factory.create(task, seed=seed, episode_id=episode_id)
        if not isinstance(session, TrainableSession):
            session.close()
            raise TypeError(
                f"{type(session).__name__} has no fetch_training_trace(), so there are no tokens to train on; give a "
                "factory whose sessions capture them"
            )
        name = task if isinstance(task, str) else repr(task)
        name = name if len(name) <= 64 else f"task-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
        step = seed or 0
        key = Key(self._config.name, step, name, self._rollouts[name, step])
        self._rollouts[name, step] += 1
        return CleanerSession(session, self._config, self.reader, self._record, key, task, seed)

    @cached_property
    def reader(self) -> TraceReader:
        """The reader of the model's traces; its tokenizer is loaded once."""
        config, tokenizer = self._config, tokenizer_of(self._config.tokenizer)
        return TraceReader(
            Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab()),
            frozenset({tokenizer.eos_token_id}),
            call_format(config.call_format),
            Reading(config.python_tools, run=config.name, by_words=False),
        )


@dataclass(slots=True)
class _Outcome:
    """What became of a session's trace."""

    trace: TrainingTrace
    trajectories: tuple[Graded, ...]
    verified: VerifyResult


@dataclass(slots=True, eq=False)
class CleanerSession(ResourceSession):  # type: ignore[misc]
    """A session of another factory. Its trace is purified when it is asked for."""

    session: Any
    """The other factory's session."""
    config: CaptureConfig
    reader: TraceReader
    record: RunFolder
    key: Key
    task: Any
    seed: int | None
    _timed_out: bool = False
    _outcome: _Outcome | None = field(default=None, repr=False)

    def initial_messages(self) -> list[dict[str, Any]]:
        """Return the other session's."""
        found: list[dict[str, Any]] = self.session.initial_messages()
        return found

    def list_tools(self) -> list[Any]:
        """Return the other session's."""
        found: list[Any] = self.session.list_tools()
        return found

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool of the other session."""
        return self.session.call_tool(name, arguments)

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait for the agent, and return its exit code."""
        try:
            code: int = self.session.wait_for_completion(timeout_s)
        except TimeoutError:
            self._timed_out = True
            raise
        return code

    def fetch_training_trace(self) -> TrainingTrace:
        """Return the trace, purified. It must not be called where an event loop runs.

        A session whose infrastructure broke gives a trace with nothing in the loss, and no reward.
        """
        return self._done().trace

    def verify(self, transcript: list[dict[str, Any]], final_state: Any | None = None) -> VerifyResult:
        """Return the other session's grade, of the rollout as it was sampled; no reward if something broke."""
        if self._outcome is not None:
            return self._outcome.verified
        return self.session.verify(transcript, final_state)

    def close(self) -> None:
        """Close the other session."""
        self.session.close()

    @property
    def trajectories(self) -> tuple[Graded, ...]:
        """The rollout, one trajectory for each chain of tokens: purified, re-scored and graded."""
        return self._done().trajectories

    # ---- ours

    def _done(self) -> _Outcome:
        if self._outcome is None:
            self._outcome = asyncio.run(self._purified())
            self.record.write(self._outcome.trajectories)
        return self._outcome

    async def _purified(self) -> _Outcome:
        raw: TrainingTrace = self.session.fetch_training_trace()
        last = raw.turns[-1] if raw.turns else None
        verified: VerifyResult = self.session.verify([] if last is None else [*messages_of(last), reply(last)])
        try:
            read = self.reader.read(raw, self.key)
        except UnreadableTraceError as error:
            info = RolloutInfo(grade=str(error), other={"trace": raw.model_dump(mode="json")})
            unread = Trajectory(token_span("", ()), key=self.key, stop_reason=StopReason.DROPPED, info=info)
            return _Outcome(raw, (unread,), verified)
        reward = verified.env_reward
        success = None if reward is None else reward >= self.config.threshold
        graded = [replace(each, reward=reward, success=success) for each in read]
        if self._timed_out:
            graded = [replace(each, stop_reason=StopReason.TIME_LIMIT) for each in graded]
        if reward is None:
            fault = "the session has no reward"
            graded = [replace(each, info=replace(each.info, fault=fault)) for each in graded]
        inside = success or (reward is not None and self.config.scope is PurifyScope.ALL)
        if inside and not self._timed_out and self.config.repair is not None:
            graded = [await self._repaired(each, self.config.repair, len(read) == 1) for each in graded]
        broken = next((each.info.fault for each in graded if not each.usable), None)
        if broken is not None:
            fault = broken or "a tool broke"
            graded = [replace(each, info=replace(each.info, fault=fault)) for each in graded]
            silent = [turn.model_copy(update={"loss_mask": [0] * len(turn.loss_mask)}) for turn in raw.turns]
            trace, verified = TrainingTrace(turns=silent), replace(verified, env_reward=None)
        else:
            trace = write_trace(raw, graded, mask_failed=self.config.mask_failed and bool(inside))
        stored = (replace(each, info=replace(each.info, log=None)) for each in graded)
        return _Outcome(trace, tuple(stored), verified)

    async def _repaired(self, rollout: Graded, config: RepairConfig, whole: bool) -> Graded:
        """Return a rollout with its repairs, re-scored, and why other failures stay; a fault if the engine broke."""
        made, left = await self._proven(rollout, config) if whole and self.config.replay else (rollout, ())
        if not made.edits:
            purified = purify_log(rollout, config, refusal=_of_programs(rollout))
            made, left = purified.trajectory, purified.left_alone
        told = [{"turn": each.turn, "reason": each.reason.value} for each in left]
        made = replace(made, info=replace(made.info, other={**made.info.other, LEFT_ALONE: told}))
        return await self._rescored(made)

    async def _proven(self, rollout: Graded, config: RepairConfig) -> tuple[Graded, Sequence[LeftAlone]]:
        """Return the rollout with every repair that is warranted, if a replay gives its results again."""
        tried = purify_log(rollout, config, replayed=True, refusal=_unplaced(rollout))
        if not tried.trajectory.edits:
            return rollout, tried.left_alone
        try:
            proof = await verify_by_replay(tried.trajectory, self._fresh)
        except ReplayFaultError:
            return rollout, ()
        return (proof.trajectory, tried.left_alone) if proof.replay.verdict is ReplayVerdict.SAME else (rollout, ())

    @asynccontextmanager
    async def _fresh(self) -> AsyncIterator[ExecuteCall]:
        assert self.config.replay is not None
        with self.config.replay(self.task, self.seed) as run:

            async def execute(call: ToolCall) -> ToolResult:
                told = await asyncio.to_thread(run, call)
                return self.reader.result(call, told) or ToolResult(Status.ERROR, told, explanation="not known")

            yield execute

    async def _rescored(self, rollout: Graded) -> Graded:
        """Return the rollout with log-probs of moved tokens, by the engine that sampled it; a fault if it can't."""
        if not rollout.edits:
            return rollout
        async with Address(self.config.engine.rstrip("/").removesuffix("/v1")) as address:
            engine = VllmEngine(address)

            async def score(prefix_T: Ids, suffix_T: Ids) -> Scores:  # noqa: N803 - shapes are part of names
                return await engine.score(prefix_T, suffix_T, request=str(rollout.key))

            bound = self.config.max_logprob_gap
            try:
                if bound is None:
                    return await rescore(rollout, score)
                return await refuse_wide_gaps(rollout, score, bound)
            except* EngineFaultError as faults:
                fault = f"re-scoring: {faults.exceptions[0]}"
        return replace(rollout, stop_reason=StopReason.FAULT, info=replace(rollout.info, fault=fault))


def _unplaced(rollout: Graded) -> Refusal:
    """Return a refusal of repairs with turns whose calls we can't place."""

    def refusal(failures: range, failed: int) -> StrEnum | None:
        turns = rollout.turns[failed], rollout.turns[failures.stop]
        return Kept.UNPLACED if any(turn.calls and turn.action is None for turn in turns) else None

    return refusal


def _of_programs(rollout: Graded) -> Refusal:
    """Return a refusal of repairs of programs: nobody shows what they did before they failed."""
    unplaced = _unplaced(rollout)

    def refusal(failures: range, failed: int) -> StrEnum | None:
        ran = _ran_program(rollout.turns[failed])
        return Reason.UNPROVEN if ran else unplaced(failures, failed)

    return refusal


def _ran_program(turn: Turn[Any]) -> bool:
    return any(
        call.kind in PROGRAMS and result.failed and result.status is not Status.MALFORMED
        for call, result in zip(turn.calls, turn.results, strict=False)
    )
