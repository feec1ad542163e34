"""Reads a trace of verifiers as a trajectory with tokens, and writes a row as the trace that a trainer takes.

The ids, masks and log-probs are those that verifiers recorded in the nodes: a node holds the tokens that its message
added, and the node of a sampled message begins with the tokens of the generation prompt. Calls and results are read
from the messages, by the same reader as `traces.jsonl` (`cleaner_rl.logs`).

A row is written into a copy of the trace, under an id of its own. verifiers streams the nodes of a trace while it grows
and never sends a node again, so a node that changes afterwards would not reach a trainer in another process.

Limits: a trace is a chain of messages. Branches (subagents, compaction) are refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cleaner_rl.logs import Reading, Unreadable, log_format
from cleaner_rl.tools import CallFormat
from cleaner_rl.train.rows import Graded, TrainRow
from cleaner_rl.trajectory import (
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
"""Where a written trace keeps what was sampled: `trace.info["cleaner_rl"]` has the id of the sampled trace, and, of a
repaired one, its nodes as `raw_nodes`."""
RAW_FIELDS = {"routed_experts", "sampling_mask", "renderer_token_ids"}
"""Fields of a node that are not kept of the raw trace: arrays that are no JSON."""
LIMITS = {
    "max_turns": StopReason.TURN_LIMIT,
    "max_input_tokens": StopReason.TOKEN_LIMIT,
    "max_output_tokens": StopReason.TOKEN_LIMIT,
    "max_total_tokens": StopReason.TOKEN_LIMIT,
}


class UnreadableTraceError(ValueError):
    """A trace can't be read as turns with tokens; the message says why."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The node of a sampled message, and the nodes up to the next one, by their indices."""

    said: int
    heard: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TraceReader:
    """Reads the traces of one model.

    Example:
        ```python
        vocabulary = Vocabulary.from_byte_level(tokenizer.get_vocab(), tokenizer.get_added_vocab())
        reader = TraceReader(vocabulary, {tokenizer.eos_token_id}, call_format("hermes"))
        trajectory = reader.read(trace, Key("run", 0, "task", 0))
        ```
    """

    vocabulary: Vocabulary
    stop_ids: Collection[int]
    """The end-of-turn tokens of the model."""
    call_format: CallFormat
    """How the model writes calls: it says where the reasoning of a turn ends."""
    reading: Reading = Reading()  # noqa: RUF009 - frozen

    def read(self, trace: Any, key: Key, threshold: float = 1.0) -> Graded:
        """Return the trace as a trajectory, not repaired; a trace that broke has the stop reason `fault`.

        Args:
            trace: A finished `verifiers.v1.Trace` of a train client, whose nodes have tokens.
            key: The name of the rollout.
            threshold: The reward from which on the task is solved.

        Raises:
            UnreadableTraceError: The trace didn't break, and can't be read.
        """
        reason, fault = _stop_reason(trace)
        try:
            found = self._turns(trace)
        except UnreadableTraceError:
            if reason is not StopReason.FAULT:
                raise
            found = Trajectory(token_span("", ()), key=key)
        graded = bool(trace.rewards) and all(each is not None for each in trace.rewards.values())
        if not graded and reason is not StopReason.FAULT:
            reason, fault = StopReason.FAULT, "the trace has no reward"
        answered = bool(found.turns) and not found.turns[-1].calls
        return replace(
            found,
            key=key,
            reward=float(trace.reward) if graded else None,
            success=trace.reward >= threshold if graded else None,
            stop_reason=reason,
            info=replace(found.info, fault=fault, answer=trace.last_reply if answered else None, session=trace.id),
        )

    def _turns(self, trace: Any) -> Graded:
        groups = _groups(trace.nodes)
        nodes = [each.model_dump(mode="json", include={"parent", "message", "sampled"}) for each in trace.nodes]
        try:
            text = log_format("verifiers").read({"traces": [{"nodes": nodes}]}, 0, self.reading)
        except Unreadable as error:
            raise UnreadableTraceError(f"a trace can't be read: {error}") from None
        if len(text.turns) != len(groups):
            raise UnreadableTraceError("a trace has a message of the assistant that no model sampled")
        first = groups[0]
        prompt = [id_ for node in trace.nodes[: first.said] for id_ in node.token_ids]
        prompt += _scaffold(trace.nodes[first.said])
        turns = []
        for group, following, logged in zip(groups, [*groups[1:], None], text.turns, strict=True):
            heard = [id_ for index in group.heard for id_ in trace.nodes[index].token_ids]
            if following is not None:
                heard += _scaffold(trace.nodes[following.said])
            turn = self._turn(trace.nodes[group.said], logged)
            turns.append(replace(turn, observation=self._span(heard) if heard else None))
        log = text.info.log or {}
        return Trajectory(self._span(prompt), tuple(turns), info=RolloutInfo(log={"spoken": log.get("spoken", [])}))

    def _turn(self, node: Any, logged: Turn[TextSpan]) -> Turn[TokenSpan]:
        """Return the turn of a sampled node, with the results of its calls."""
        begins = len(_scaffold(node))
        sampled = token_span("", node.token_ids[begins:], logprobs=node.logprobs)
        turn = read_tokens(sampled, self.vocabulary, self.call_format, self.reading.tools, self.stop_ids)
        same = [each.name for each in turn.calls] == [each.name for each in logged.calls]
        if not same:
            # The renderer read other calls than we do, or ran none. Whatever came of them, the turn is not edited.
            whole = self.vocabulary.decode(sampled.ids).text
            return Turn(replace(sampled, text=whole))
        return replace(turn, results=logged.results)

    def _span(self, ids: Sequence[int]) -> TokenSpan:
        span = token_span("", ids)
        return replace(span, text=self.vocabulary.decode(span.ids).text)


def write_row(trace: Any, trajectory: Graded, row: TrainRow) -> Any:
    """Return the trace with a row in its nodes: the trace itself if it holds the row already, else a copy.

    A trainer that joins the nodes then has the row's ids, loss mask, log-probs and advantage. A copy has an id of its
    own, and names the sampled trace in `info["cleaner_rl"]["trace"]`. If the trajectory is repaired, the sampled nodes
    are in `info["cleaner_rl"]["raw_nodes"]`.

    Args:
        trace: The trace that the trajectory was read from; it is not changed.
        trajectory: What was read from it, repaired or not.
        row: The row of the trajectory.
    """
    ids = np.concatenate([row.prompt_ids, row.response_ids])
    mask = np.concatenate([np.zeros(len(row.prompt_ids), np.bool_), row.loss_mask])
    logprobs = np.concatenate([np.zeros(len(row.prompt_ids), np.float32), row.logprobs])
    edited = any(edit.commits for _, edit in trajectory.edits)
    nodes: list[Any] = []
    moved_to: dict[int, int] = {}
    start, masked = 0, False
    for index, message, length, opening in _pieces(trace.nodes, trajectory):
        old, part = trace.nodes[index], slice(start, start + length)
        start += length
        fields: dict[str, Any] = {"advantages": None}
        if row.advantage is not None and mask[part].any():
            fields["advantages"] = _stream(old, np.full(mask[part].sum(), row.advantage))
        if edited or mask[part].tolist() != list(old.mask):
            masked = True
            fields |= {
                "token_ids": _stream(old, ids[part]),
                "mask": _stream(old, mask[part]),
                "logprobs": _stream(old, logprobs[part][mask[part]]),
                "is_content": _stream(old, np.array(_content(old, length, opening), np.bool_)),
                "renderer_token_ids": None,
                "sampling_mask": None,
            }
        if edited:
            # The experts were chosen in another context.
            fields |= {"parent": len(nodes) - 1 if nodes else None, "message": message, "routed_experts": None}
        moved_to[index] = len(nodes)
        nodes.append(old.model_copy(update=fields))
    if start != len(ids):
        raise ValueError(f"{start} tokens of a trace can't hold a row of {len(ids)}; give the trajectory read from it")
    if not edited and not masked and row.advantage is None:
        return trace
    kept: dict[str, Any] = {"trace": trace.id}
    if edited:
        kept["raw_nodes"] = [
            node.model_dump(mode="json", exclude=RAW_FIELDS, context={"float_decimals": None}) for node in trace.nodes
        ]
    changes = {
        "id": uuid.uuid4().hex,
        "nodes": nodes,
        "calls": [call.model_copy(update={"node": moved_to.get(call.node)}) for call in trace.calls],
        "info": {**trace.info, KEPT: kept},
    }
    written = trace.model_copy(update=changes)
    written._head_index = {}  # of the sampled nodes; verifiers makes it again
    return written


def _pieces(nodes: Sequence[Any], trajectory: Graded) -> list[tuple[int, Any, int, int]]:
    """Return the nodes of the trajectory, in order.

    Of each: its index in the trace, its message, how many tokens it holds, and how many of them are the generation
    prompt.
    """
    groups = _groups(nodes)

    def unchanged(index: int) -> tuple[int, Any, int, int]:
        return index, nodes[index].message, len(nodes[index].token_ids), 0

    pieces = [unchanged(index) for index in range(groups[0].said)]
    position = 0
    for turn in trajectory.turns:
        opening = len(_scaffold(nodes[groups[position].said]))
        edit = turn.edit if turn.edit is not None and turn.edit.commits else None
        failed = groups[position]
        position += 1 if edit is None else len(edit.original)
        last = groups[position - 1]
        message = nodes[last.said].message
        if edit is not None and edit.kind is RepairKind.GRAFT:
            calls = message.tool_calls
            message = nodes[failed.said].message.model_copy(update={"tool_calls": calls, "provider_state": None})
        sampled = len(turn.reasoning) + (0 if turn.action is None else len(turn.action))
        pieces.append((last.said, message, opening + sampled, opening))
        pieces += map(unchanged, last.heard)
    return pieces


def _groups(nodes: Sequence[Any]) -> list[_Group]:
    """Return the sampled nodes of a trace, each with what follows it."""
    if any(node.parent != (index - 1 if index else None) for index, node in enumerate(nodes)):
        raise UnreadableTraceError("a trace has branches, so it is not one sequence of turns")
    if any(node.semantic_parents for node in nodes):
        raise UnreadableTraceError("a trace has links between its turns (subagents, compaction)")
    said = [index for index, node in enumerate(nodes) if node.sampled]
    if not said:
        raise UnreadableTraceError("nothing was sampled in a trace")
    for index in said:
        node = nodes[index]
        if not any(node.mask) or len(node.logprobs) != sum(node.mask):
            raise UnreadableTraceError(
                "a sampled message has no token ids or no log-probs; sample with a train client (client.type = 'train')"
            )
        if not all(node.mask[len(_scaffold(node)) :]):
            raise UnreadableTraceError("a sampled message has tokens in its middle that were not sampled")
    ends = [*said[1:], len(nodes)]
    return [_Group(index, tuple(range(index + 1, end))) for index, end in zip(said, ends, strict=True)]


def _scaffold(node: Any) -> list[int]:
    """Return the tokens of the generation prompt, with which a sampled node begins."""
    return [int(id_) for id_ in node.token_ids[: list(node.mask).index(True)]]


def _stream(node: Any, values: npt.NDArray[Any]) -> Any:
    """Return values of tokens as a node has them: as lists, or from verifiers 0.4.1 on as arrays."""
    if not isinstance(node.mask, np.ndarray):
        return values.tolist()
    return values.astype(np.float32) if values.dtype.kind == "f" else values


def _content(node: Any, length: int, opening: int) -> list[bool]:
    """Return which tokens of a node are its message's own; empty if the renderer doesn't say."""
    if not len(node.is_content) or not node.sampled:
        return list(node.is_content)
    return [False] * opening + [True] * (length - opening)


def _stop_reason(trace: Any) -> tuple[StopReason, str]:
    """Return how a trace ended, and what broke."""
    if trace.is_timeout:
        return StopReason.TIME_LIMIT, ""
    if not trace.ok:
        error = trace.last_error
        return StopReason.FAULT, f"{error.type}: {error.message}" if error is not None else "the trace did not complete"
    if trace.is_truncated:
        return LIMITS.get(trace.stop_condition, StopReason.TOKEN_LIMIT), ""
    return StopReason.ANSWERED, ""
