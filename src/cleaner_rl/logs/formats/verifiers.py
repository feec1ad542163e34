"""`verifiers`: rollouts of Prime Intellect's verifiers, of both generations.

- `traces.jsonl` of version 1: an episode a line. Its trace is a graph of messages; `rewards` are scores with weights.
- `results.jsonl` of version 0: a rollout a line, with `prompt`, `completion`, `reward` and `example_id`. Each tool call
  is JSON text in it, and is written so again.

A trace's nodes are written again as a chain. A grafted node has no token ids and log-probs: nobody sampled it as a
whole.

Limits: an episode of several traces, or whose graph has branches (subagents, compaction), is passed through as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cleaner_rl.logs.chats import chat_of
from cleaner_rl.logs.formats.base import Conversation, Reading, Record, finite, inside, key_of, log_of, outcome_of
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import Dialect, Reader, Unreadable, all_written
from cleaner_rl.tools import read_json
from cleaner_rl.trajectory import Key, RolloutInfo, StopReason, TextSpan, Trajectory

NODE = "node."
TOKEN_FIELDS = ("token_ids", "mask", "is_content", "logprobs", "advantages", "reference_logprobs", "trainer_logprobs")
DIALECT = Dialect(
    sampling_fields=(
        "provider_state",
        *(NODE + name for name in (*TOKEN_FIELDS, "entropies", "loss_weights", "timestamp")),
    )
)


class VerifiersFormat:
    """Reads and writes episodes with a trace, and rollouts with a prompt and a completion."""

    name = "verifiers"

    def detects(self, record: object) -> bool:
        """Return whether a record has the fields of either generation."""
        return _is_episode(record) or _is_rollout(record)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record; each message of the assistant is a turn."""
        if _is_episode(record):
            return _read_episode(record, number, reading)
        if not _is_rollout(record):
            raise Unreadable("a record that is neither an episode nor a rollout of messages")
        prompt, completion = record["prompt"], record["completion"]
        packed = any(isinstance(call, str) for message in (*prompt, *completion) for call in _calls(message))
        if packed:
            prompt, completion = _unpacked(prompt), _unpacked(completion)
        found = Reader(reading.tools, DIALECT, reading.call_format).read(prompt, completion)
        reward, success = outcome_of(record)
        log = {
            "format": self.name,
            "record": {**record, "prompt": None, "completion": None},
            "prompts": len(prompt),
            **({"packed": True} if packed else {}),
            **found.kept,
        }
        key = key_of(record, number, reading, found.prompt.text)
        stop_reason = StopReason.FAULT if record.get("error") else None
        return Trajectory(found.prompt, found.turns, key, reward, success, stop_reason, RolloutInfo(log=log))

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the episode or rollout with the messages of the turns."""
        log = log_of(trajectory)
        messages = all_written(trajectory, DIALECT)
        record: Record = log["record"]
        if "prompts" in log:
            split = log["prompts"]
            if log.get("packed"):
                messages = _packed(messages)
            return {**record, "prompt": messages[:split], "completion": messages[split:]}
        trace = {**record["traces"][0], "nodes": [_node(message, index) for index, message in enumerate(messages)]}
        if log.get("rooted"):
            trace["nodes"][0] = {"parent": None, **trace["nodes"][0]}
        return {**record, "traces": [trace]}

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the messages and tools in OpenAI's form."""
        log = log_of(trajectory)
        record: Record = log["record"]
        tools = record.get("tool_defs") if "prompts" in log else record["traces"][0].get("tools")
        return chat_of(trajectory, DIALECT, tools)


def _is_episode(record: object) -> bool:
    traces = record.get("traces") if isinstance(record, dict) else None
    return isinstance(traces, list) and all(isinstance(each, dict) and "nodes" in each for each in traces)


def _is_rollout(record: object) -> bool:
    if not isinstance(record, dict) or "reward" not in record:
        return False
    parts = record.get("prompt"), record.get("completion")
    return all(isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in parts)


def _calls(message: Message) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _packed(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with each of their calls as JSON text."""
    return [
        {**each, "tool_calls": list(map(json.dumps, calls))} if (calls := _calls(each)) else each for each in messages
    ]


def _unpacked(messages: Sequence[Message]) -> list[Message]:
    """Undo `_packed`. Raises `Unreadable` if packing would not give the same text again."""
    try:
        unpacked = [
            {**each, "tool_calls": list(map(read_json, calls))} if (calls := _calls(each)) else each
            for each in messages
        ]
        exact = _packed(unpacked) == messages
    except (ValueError, TypeError):
        raise Unreadable("a tool call that is not valid JSON") from None
    if not exact:
        raise Unreadable("a tool call whose JSON would be written differently")
    return unpacked


def _read_episode(record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
    if len(record["traces"]) != 1:
        raise Unreadable("an episode of several traces")
    trace = record["traces"][0]
    nodes = trace["nodes"]
    if not _are_nodes(nodes):
        raise Unreadable("a trace whose nodes are not messages")
    if any(node.get("parent") != (index - 1 if index else None) for index, node in enumerate(nodes)):
        raise Unreadable("a trace with branches")
    messages = [_message(node) for node in nodes]
    # What the model didn't sample is context, whoever it is put into the mouth of.
    first = next((index for index, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    found = Reader(reading.tools, DIALECT, reading.call_format).read(messages[:first], messages[first:])
    log = {
        "format": VerifiersFormat.name,
        "record": {**record, "traces": [{**trace, "nodes": None}]},
        **({"rooted": True} if nodes and "parent" in nodes[0] else {}),
        **found.kept,
    }
    key = Key(reading.run, _step(record), _task(record), number)
    # The errors of an episode are its environment's or its provider's, never the model's.
    stop_reason = StopReason.FAULT if record.get("errors") else None
    return Trajectory(found.prompt, found.turns, key, _reward(trace), None, stop_reason, RolloutInfo(log=log))


def _are_nodes(nodes: object) -> bool:
    return isinstance(nodes, list) and all(
        isinstance(each, dict) and isinstance(each.get("message"), dict) for each in nodes
    )


def _reward(trace: Record) -> float | None:
    """Return the sum of its scores by their weights; None if it has none."""
    scores = [each for each in inside(trace, "rewards").values() if isinstance(each, Mapping)]
    weighed = [(each.get("score"), each.get("weight", 1.0)) for each in scores]
    numbers = [score * weight for score, weight in weighed if _is_number(score) and _is_number(weight)]
    return finite(sum(numbers)) if numbers else None


def _step(record: Record) -> int:
    step = inside(record, "run", "work").get("step")
    return step if isinstance(step, int) else 0


def _task(record: Record) -> str:
    data = inside(record, "task", "data")
    return str(inside(record, "task").get("key") or data.get("idx", data.get("name", "")))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _message(node: Mapping[str, Any]) -> Message:
    """Return a node's message, with the node's other fields beside it."""
    rest = {NODE + name: value for name, value in node.items() if name not in ("message", "parent")}
    return {**node["message"], **rest}


def _node(message: Message, index: int) -> Record:
    own = {name.removeprefix(NODE): value for name, value in message.items() if name.startswith(NODE)}
    words = {name: value for name, value in message.items() if not name.startswith(NODE)}
    return {**({"parent": index - 1} if index else {}), "message": words, **own}
