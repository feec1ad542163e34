"""Reads a trace of OpenEnv as trajectories with tokens, and writes trajectories as the trace that a trainer takes.

The ids, masks and log-probs are those that the engine gave. A turn continues another one if its prompt begins with that
one's prompt and completion, token for token: turns that continue each other are a *chain*, and a chain is a trajectory.
Where the harness or the chat template wrote a history differently than it was sampled, a new chain begins, as in
OpenEnv's own graph. No turn of one chain is repaired by a turn of another, since that would need new tokens.

The results of a turn's calls are in the messages of a later request. They are read by the readers of logs
(`cleaner_rl.logs`), by structure only: exit codes, flags and error fields. A call whose tool the request doesn't name,
or that lacks an argument which the tool requires, is malformed unless the harness says that it worked.

Limits: a turn that is masked in part is refused, and a turn that is masked as a whole is context.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from openenv.core.harness import TrainingTrace, TrainingTurn

from cleaner_rl.logs import Reading, Unreadable, log_format
from cleaner_rl.tools import CallFormat, Status, ToolCall, ToolResult, ToolSpec
from cleaner_rl.train.rows import Graded, failed_tokens
from cleaner_rl.trajectory import (
    Edit,
    Key,
    RepairKind,
    RolloutInfo,
    StopReason,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    Vocabulary,
    read_tokens,
    token_span,
)

KEPT = "cleaner_rl"
"""The entry of a turn's metadata for what was done with it: `statuses` of its calls, and by their `node_id`s the turns
that it `replaces`."""
NODES = "openenv"
"""The entry of a stored trajectory (`info.other`) for its turns as they were captured: `node_id`, `response` and
`metadata` of each."""
LEFT_ALONE = "left_alone"
"""The entry of a stored trajectory (`info.other`) for the failed turns that were not repaired."""
Message = dict[str, Any]


class UnreadableTraceError(ValueError):
    """A trace can't be read as turns with tokens; the message says why."""


@dataclass(frozen=True, slots=True)
class TraceReader:
    """Reads the traces of one model.

    Example:
        ```python
        vocabulary = Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab())
        reader = TraceReader(vocabulary, {tokenizer.eos_token_id}, call_format("hermes"))
        trajectories = reader.read(session.fetch_training_trace(), Key("run", 0, "task", 0))
        ```
    """

    vocabulary: Vocabulary
    stop_ids: Collection[int]
    """The end-of-turn tokens of the model."""
    call_format: CallFormat
    """How the model writes calls: it says where the reasoning of a turn ends."""
    reading: Reading = Reading(by_words=False)  # noqa: RUF009 - frozen

    def read(self, trace: TrainingTrace, key: Key) -> tuple[Graded, ...]:
        """Return the trajectories of a trace, one for each chain, in order of their first turns; none is repaired.

        Args:
            trace: What OpenEnv captured.
            key: The name of the rollout.

        Raises:
            UnreadableTraceError: Nothing was sampled, a turn is masked in part, or its messages can't be read.
        """
        return tuple(self._chain(trace.turns, chain, key) for chain in chains(trace.turns))

    def result(self, call: ToolCall, text: str) -> ToolResult | None:
        """Return what a harness's message says of a call; None if it doesn't say by structure whether it worked."""
        function = {"name": call.name, "arguments": dict(call.arguments)}
        said = {"role": "assistant", "tool_calls": [{"id": "0", "type": "function", "function": function}]}
        turn = self._logged(said, [{"role": "tool", "tool_call_id": "0", "content": text}])[0]
        return turn.results[0] if turn.results else None

    def _chain(self, turns: Sequence[TrainingTurn], chain: Sequence[int], key: Key) -> Graded:
        made, spoken = [], []
        for place, (index, following) in enumerate(zip(chain, [*chain[1:], None], strict=True)):
            turn, spoke = self._turn(turns, index)
            if following is not None:
                end = len(turns[index].prompt_token_ids) + len(turns[index].completion_token_ids)
                turn = replace(turn, observation=self._span(turns[following].prompt_token_ids[end:]))
                spoke = spoke or _other_turn_between(turns[index], turns[following])
            made.append(turn)
            spoken += [place] if spoke else []
        first, last = turns[chain[0]], turns[chain[-1]]
        said = reply(last)
        length = finish_reason(last) == "length"
        info = RolloutInfo(
            answer=said.get("content") if isinstance(said.get("content"), str) else None,
            log={"spoken": spoken},
            messages=[*messages_of(last), said],
            tools=first.request.get("tools") or None,
            other={
                NODES: [
                    {"node_id": each.node_id, "response": each.response, "metadata": each.metadata}
                    for each in map(turns.__getitem__, chain)
                ]
            },
        )
        stop = StopReason.TOKEN_LIMIT if length else StopReason.ANSWERED
        return Trajectory(self._span(first.prompt_token_ids), tuple(made), key, stop_reason=stop, info=info)

    def _turn(self, turns: Sequence[TrainingTurn], index: int) -> tuple[Turn[TokenSpan], bool]:
        """Return a turn with the results of its calls, and whether somebody spoke after it."""
        captured = turns[index]
        sampled = token_span("", captured.completion_token_ids, logprobs=captured.per_token_logps)
        turn = read_tokens(sampled, self.vocabulary, self.call_format, self.reading.tools, self.stop_ids)
        heard = heard_after(turns, index)
        logged, spoke = self._logged(reply(captured), heard)
        went_on = index + 1 < len(turns)
        calls, results = _with_problems(logged, captured.request.get("tools"), went_on=went_on)
        if went_on and not calls and turn.calls and all(call.problem for call in turn.calls):
            # Nobody could read the call, so nothing ran.
            return replace(turn, results=tuple(each for call in turn.calls if (each := call.refusal))), spoke
        if _same_calls(turn.calls, calls):
            read = zip(turn.calls, calls, strict=True)
            placed = tuple(replace(theirs, start=ours.start, end=ours.end) for ours, theirs in read)
            return replace(turn, calls=placed, results=results), spoke
        # The harness read other calls than we do. Where they begin is not known, so nothing is grafted.
        whole = self.vocabulary.decode(sampled.ids).text
        unplaced = tuple(replace(call, start=0, end=0) for call in calls)
        return Turn(replace(sampled, text=whole), calls=unplaced, results=results), spoke

    def _logged(self, said: Message, heard: Sequence[Message]) -> tuple[Turn[TextSpan], bool]:
        record = {"messages": [{**said, "role": "assistant"}, *heard]}
        try:
            text = log_format("openai").read(record, 0, self.reading)
        except Unreadable as error:
            raise UnreadableTraceError(f"a turn's messages can't be read: {error}") from None
        return text.turns[0], bool((text.info.log or {}).get("spoken"))

    def _span(self, ids: Sequence[int]) -> TokenSpan:
        span = token_span("", ids)
        return replace(span, text=self.vocabulary.decode(span.ids).text)


def chains(turns: Sequence[TrainingTurn]) -> list[list[int]]:
    """Return the indices of turns that continue each other, token for token."""
    found: list[list[int]] = []
    ends: list[list[int]] = []
    for index, turn in enumerate(turns):
        mask = turn.loss_mask[len(turn.prompt_token_ids) :]
        if not any(mask):
            continue
        if not all(mask):
            raise UnreadableTraceError(f"the turn {turn.node_id} is masked in part")
        prompt = turn.prompt_token_ids
        fits = [place for place, end in enumerate(ends) if prompt[: len(end)] == end]
        end = prompt + turn.completion_token_ids
        if fits:
            place = max(fits, key=lambda each: len(ends[each]))
            found[place].append(index)
            ends[place] = end
        else:
            found.append([index])
            ends.append(end)
    if not found:
        raise UnreadableTraceError("nothing was sampled in a trace")
    return found


def write_trace(trace: TrainingTrace, trajectories: Sequence[Graded], *, mask_failed: bool) -> TrainingTrace:
    """Return the trace with what became of its chains. Turns that nothing was done with stay as they are.

    The prompts of turns behind a repair are those of the repaired history, and so are the messages of their requests.
    The turns that a repair took out are gone.

    Args:
        trace: The trace that the trajectories were read from; it is not changed.
        trajectories: What was read from it, repaired and re-scored or not.
        mask_failed: Whether failed turns are left out of the loss.
    """
    written: dict[int, TrainingTurn | None] = {}
    for chain, trajectory in zip(chains(trace.turns), trajectories, strict=True):
        written |= _written(trace.turns, chain, trajectory, mask_failed)
    taken_out = [index for index, turn in written.items() if turn is None]
    turns = []
    for index, turn in enumerate(trace.turns):
        context = index not in written and bool(taken_out) and index > min(taken_out)
        made = None if context else written.get(index, turn)
        turns += [] if made is None else [made]
    return TrainingTrace(turns=turns)


def _written(
    turns: Sequence[TrainingTurn], chain: Sequence[int], trajectory: Graded, mask_failed: bool
) -> Iterator[tuple[int, TrainingTurn | None]]:
    """Yield what becomes of each turn of a chain: None if a repair took it out."""
    ids, logprobs = trajectory.ids().tolist(), trajectory.logprobs().tolist()
    failed = failed_tokens(trajectory).tolist()
    position, start = 0, len(trajectory.prompt)
    messages: list[Message] | None = None  # None: as captured, up to the first repair
    before: TrainingTurn | None = None
    said: Message = {}
    for turn in trajectory.turns:
        edit = turn.edit if turn.edit is not None and turn.edit.commits else None
        count = 1 if edit is None else len(edit.original)
        stands_for = [turns[index] for index in chain[position : position + count]]
        captured = stands_for[-1]
        end = start + len(turn.reasoning) + (0 if turn.action is None else len(turn.action))
        kept: dict[str, Any] = {"statuses": [result.status.value for result in turn.results]}
        if messages is not None and before is not None:
            messages = [*messages, said, *messages_of(stands_for[0])[len(messages_of(before)) + 1 :]]
        if edit is not None:
            yield from ((index, None) for index in chain[position : position + count - 1])
            messages = messages if messages is not None else messages_of(stands_for[0])
            kept["replaces"] = [each.node_id for each in stands_for[:-1]]
        said = reply(captured) if edit is None else _repaired_reply(edit, stands_for)
        mask = [int(not (mask_failed and failed[place])) for place in range(start, end)]
        changes: dict[str, Any] = {
            "loss_mask": [0] * start + mask,
            "metadata": {**captured.metadata, KEPT: kept} if turn.calls else captured.metadata,
        }
        if messages is not None:
            changes |= {
                "prompt_token_ids": ids[:start],
                "completion_token_ids": ids[start:end],
                "per_token_logps": logprobs[start:end],
                "request": {**captured.request, "messages": messages},
                "response": _with_reply(captured.response, said),
            }
        yield chain[position + count - 1], TrainingTurn.model_validate({**dict(captured), **changes})
        before, position = captured, position + count
        start = end + (0 if turn.observation is None else len(turn.observation))


def _repaired_reply(edit: Edit[TokenSpan], stands_for: Sequence[TrainingTurn]) -> Message:
    """Return the model's message after a repair: the correction's, with the words of the failed turn after a graft."""
    correction = reply(stands_for[-1])
    if edit.kind is not RepairKind.GRAFT:
        return correction
    failed = reply(stands_for[0])
    if correction.get("tool_calls"):
        return {**failed, "tool_calls": correction["tool_calls"]}
    words, content = edit.original[-1].reasoning.text, correction.get("content")
    if isinstance(content, str) and content.startswith(words):
        return {**correction, "content": edit.original[0].reasoning.text + content[len(words) :]}
    return correction


def _with_reply(response: Mapping[str, Any], said: Message) -> dict[str, Any]:
    choices = list(response.get("choices") or [{}])
    return {**response, "choices": [{**choices[0], "message": said}, *choices[1:]]}


def reply(turn: TrainingTurn) -> Message:
    """Return the model's message of a turn."""
    choices = turn.response.get("choices") or [{}]
    return choices[0].get("message") or {}


def finish_reason(turn: TrainingTurn) -> str | None:
    """Return why the engine ended a turn."""
    choices = turn.response.get("choices") or [{}]
    found = choices[0].get("finish_reason")
    return found if isinstance(found, str) else None


def messages_of(turn: TrainingTurn) -> list[Message]:
    """Return the messages of a turn's request."""
    return list(turn.request.get("messages") or ())


def heard_after(turns: Sequence[TrainingTurn], index: int) -> list[Message]:
    """Return the messages between a turn and the model's next one, from the first later request that has the turn."""
    said, asked = reply(turns[index]), len(messages_of(turns[index]))
    ids = _call_ids(said)
    for later in turns[index + 1 :]:
        messages = messages_of(later)
        places = range(len(messages)) if ids else range(asked, min(asked + 1, len(messages)))
        for place in places:
            message = messages[place]
            if message.get("role") == "assistant" and _call_ids(message) == ids and (ids or _same_words(message, said)):
                behind = messages[place + 1 :]
                ends = (count for count, each in enumerate(behind) if each.get("role") == "assistant")
                return behind[: next(ends, len(behind))]
    return []


def _other_turn_between(turn: TrainingTurn, following: TrainingTurn) -> bool:
    """Return whether the model also said something else between two turns of a chain, which a repair would take out."""
    between = messages_of(following)[len(messages_of(turn)) + 1 :]
    return any(message.get("role") == "assistant" for message in between)


def _same_calls(ours: Sequence[ToolCall], theirs: Sequence[ToolCall]) -> bool:
    """Return whether the call format reads the harness's calls. Of a malformed one, the name may be lost."""
    return len(ours) == len(theirs) and all(
        our.name == their.name or (our.problem is not None and their.problem is not None)
        for our, their in zip(ours, theirs, strict=True)
    )


def _call_ids(message: Message) -> list[str]:
    return [str(call.get("id")) for call in message.get("tool_calls") or [] if isinstance(call, dict)]


def _same_words(message: Message, other: Message) -> bool:
    return str(message.get("content") or "").strip() == str(other.get("content") or "").strip()


def _with_problems(
    turn: Turn[TextSpan], offered: Sequence[Mapping[str, Any]] | None, *, went_on: bool
) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
    """Return a turn's calls and results, where a call that the harness can't have taken is malformed.

    A call whose tool the request doesn't name is one if the harness went on and doesn't say that it worked. A call that
    lacks an argument is one where the harness says that it failed: a tool may have a default that its schema doesn't
    tell.
    """
    functions = [each.get("function") or each for each in offered or () if isinstance(each, Mapping)]
    specs = {str(each.get("name")): ToolSpec(str(each.get("name")), each.get("parameters") or {}) for each in functions}
    problems = [call.problem or _problem(call, specs) for call in turn.calls]
    results = turn.results
    if not results and went_on and problems and all(map(_unknown, turn.calls, [specs] * len(problems))):
        results = tuple(ToolResult(Status.MALFORMED, explanation=problem or "") for problem in problems)
    if not results:
        return turn.calls, ()
    malformed = [bool(problem) and result.failed for problem, result in zip(problems, results, strict=True)]
    return (
        tuple(
            replace(call, problem=problem if wrong else None)
            for call, problem, wrong in zip(turn.calls, problems, malformed, strict=True)
        ),
        tuple(
            replace(result, status=Status.MALFORMED) if wrong else result
            for result, wrong in zip(results, malformed, strict=True)
        ),
    )


def _unknown(call: ToolCall, specs: Mapping[str, ToolSpec]) -> bool:
    return call.problem is not None or bool(specs and call.name not in specs)


def _problem(call: ToolCall, specs: Mapping[str, ToolSpec]) -> str | None:
    """Return why a call doesn't fit the tools that a request names; None if it does, or if it names none."""
    if not specs:
        return None
    spec = specs.get(call.name)
    if spec is None:
        return f"There is no tool named '{call.name}'. Available: {', '.join(map(repr, specs))}."
    return spec.problem_with(call.arguments)
