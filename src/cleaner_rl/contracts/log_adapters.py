"""The contract of log adapters: what every log format must do."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from cleaner_rl.logs import Conversation, LogFormat, Reading, Record, Unreadable, purify_log
from cleaner_rl.purify import RepairConfig
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn, undo
from cleaner_rl.trajectory.store import ParquetWriter, read

READING = Reading()
ROLES = ("system", "developer", "user", "assistant", "tool")
"""The speakers that chat templates know."""
OTHERS: tuple[Any, ...] = (
    None,
    "text",
    [],
    {},
    {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]},
    {"input": "?", "output": "!", "score": 1.0, "step": 3},
    {"prompt": [{"role": "user", "content": "?"}], "completion": [], "reward": 1.0, "example_id": 1},
    {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]},
    {"items": [{"role": "user", "content": "?"}, {"type": "reasoning", "summary": []}]},
    {"lines": [{"type": "session_meta", "payload": {"id": "1"}}]},
    {"lines": [{"type": "user", "uuid": "1", "sessionId": "1", "message": {"role": "user", "content": "?"}}]},
    {"schema_version": "ATIF-v1.4", "session_id": "1", "agent": {"name": "a", "version": "1"}, "steps": []},
)
"""What isn't a record of the adapter: no record at all, and small ones of the formats that come with the package."""
MANGLED = 200


class LogAdapterContract:
    """Tests a log adapter. Subclass it, name the subclass `Test…`, and give `make` and `records`."""

    def make(self) -> LogFormat:
        """Return the format."""
        raise NotImplementedError

    def records(self) -> Sequence[dict[str, Any]]:
        """Return some records, at least one of them with a call that failed and its correction."""
        raise NotImplementedError

    def others(self) -> Sequence[Any]:
        """Return what must not be taken for a record of this format."""
        return OTHERS

    def test_it_knows_its_own_records_and_no_others(self) -> None:
        """Formats of other packages are asked before ours: one that says yes to all takes every log."""
        made = self.make()
        for record in self.records():
            assert made.detects(record), f"it doesn't know its own record: {str(record)[:200]}"
        for record in self.others():
            assert not made.detects(record), f"it takes this for its own: {str(record)[:200]}"

    def test_a_record_that_is_not_edited_comes_back_field_for_field(self) -> None:
        """Also out of a store, and the record that was read is left as it is."""
        made = self.make()
        for record in self.records():
            before = copy.deepcopy(record)
            trajectory = made.read(record, 0, READING)
            assert record == before, "reading changed the record"
            written = made.write(trajectory)
            assert written == before, f"the record came back with other fields: {_difference(before, written)}"
            written = made.write(_stored(trajectory))
            assert written == before, f"out of a store, it came back otherwise: {_difference(before, written)}"

    def test_the_words_that_the_model_said_are_its_turns(self) -> None:
        """Each with its calls where they stand."""
        made = self.make()
        trajectories = [made.read(record, 0, READING) for record in self.records()]
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        assert turns, "no record has a turn"
        assert any(turn.failed for turn in turns), "no call failed: give a record with a failure and its correction"
        for turn in turns:
            action = "" if turn.action is None else turn.action.text
            for call in turn.calls:
                assert 0 <= call.start <= call.end <= len(action), f"a call at {call.start}:{call.end} of {action!r}"
            assert len(turn.results) in (0, len(turn.calls)), "a turn has a result for each call, or none"

    def test_a_repair_is_written_read_again_and_undone(self) -> None:
        """The whole way of `cleaner purify --same`."""
        made = self.make()
        edited = 0
        for record in self.records():
            trajectory = made.read(record, 0, READING)
            cleaned = purify_log(trajectory, RepairConfig()).trajectory
            edited += len(cleaned.edits)
            again = made.read(made.write(cleaned), 0, READING)
            now, then = ([turn.text for turn in each.turns] for each in (cleaned, again))
            assert now == then, f"a repaired record reads otherwise: {_difference(now, then)}"
            for index, _ in reversed(cleaned.edits):
                cleaned = undo(cleaned, index)
            assert made.write(cleaned) == record, "undone, the record is not the one that was read"
        assert edited, "nothing was repaired: give a record with a failed call and, right after it, the correction"

    def test_a_file_is_known_by_its_beginning_and_may_break_off(self) -> None:
        """For formats that read files: the first lines are enough, and a torn last one is kept."""
        made = self.make()
        for record in self.records():
            if not getattr(made, "reads_files", False) or "lines" not in record:
                continue
            head = {"lines": record["lines"][:64]}
            assert made.detects(head), "it doesn't know a file by its first 64 lines"
            torn = {**record, "torn": '{"cut off'}
            written = made.write(made.read(torn, 0, READING))
            assert written == torn, f"a file that breaks off came back otherwise: {_difference(torn, written)}"

    def test_it_can_be_trained_on(self) -> None:
        """An SFT row has messages of OpenAI's form, and each turn's words are in one of them."""
        for trajectory, chat in self._chats():
            assert len(chat.turns) == len(chat.messages), "each message is a turn's, or nobody's (None)"
            said = [turn for turn in chat.turns if turn is not None]
            assert said == list(range(len(trajectory.turns))), f"{len(trajectory.turns)} turns became messages {said}"
            for message, turn in zip(chat.messages, chat.turns, strict=True):
                role = message.get("role")
                assert role in ROLES, f"no chat template knows the role {role!r}; use one of {', '.join(ROLES)}"
                assert role == "assistant" or turn is None, f"a turn is said by {role!r}"
            json.dumps(chat.messages)

    def test_the_calls_of_a_row_are_calls(self) -> None:
        """A call that is still text of the log's own form would teach the model a form that no chat template knows."""
        for trajectory, chat in self._chats():
            for message, number in zip(chat.messages, chat.turns, strict=True):
                if number is not None and number < len(trajectory.turns):
                    _check_calls(trajectory.turns[number], message, f"the SFT row of turn {number}")

    def test_a_broken_record_is_unreadable_and_nothing_worse(self) -> None:
        """Real logs have odd records: fields are missing, empty, or of another type."""
        made = self.make()
        random = Random(0)
        records = self.records()
        for number in range(MANGLED):
            record = _mangled(copy.deepcopy(records[number % len(records)]), random)
            try:
                if not made.detects(record):
                    continue
                trajectory = made.read(record, 0, READING)
            except Unreadable:
                continue
            except Exception as error:
                text = json.dumps(record)[:300]
                raise AssertionError(f"it raised {error!r}; raise Unreadable, in words, instead: {text}") from error
            assert made.write(trajectory) == record, f"a broken record came back otherwise: {json.dumps(record)[:300]}"
            with suppress(Unreadable):
                made.chat(trajectory)

    def _chats(self) -> Iterator[tuple[Trajectory[TextSpan], Conversation]]:
        made = self.make()
        for record in self.records():
            trajectory = made.read(record, 0, READING)
            yield trajectory, made.chat(trajectory)


def _check_calls(turn: Turn[TextSpan], message: Record, where: str) -> None:
    """Fail if a message holds its turn's calls neither as OpenAI has them nor as `<tool_call>` blocks in its text."""
    calls = message.get("tool_calls") or []
    for call in calls:
        told = f'{where} has a call that is no {{"function": {{"name": …, "arguments": object}}}}: {call!r}'
        function = call.get("function") if isinstance(call, dict) else None
        assert isinstance(function, dict), told
        assert isinstance(function.get("name"), str), told
        assert isinstance(function.get("arguments"), dict), told
    if calls:
        names = [call["function"]["name"] for call in calls]
        assert names == [call.name for call in turn.calls], f"{where} has the calls {names}"
    elif turn.calls:
        text = str(message.get("content") or "")
        found = READING.tools.text_form([text], None)
        assert found is not None, f"{where} has its calls neither in `tool_calls` nor as <tool_call> blocks: {text!r}"


def _stored(trajectory: Trajectory[TextSpan]) -> Trajectory[TextSpan]:
    with tempfile.TemporaryDirectory() as folder:
        with ParquetWriter(Path(folder) / "store") as writer:
            writer.write(trajectory)
        (found,) = read(Path(folder) / "store")
        return found  # type: ignore[return-value]


def _mangled(record: dict[str, Any], random: Random) -> dict[str, Any]:
    """The record with one place in it gone, or another value there."""
    node: Any = record
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = random.choice(keys)
        child = node[key]
        if isinstance(child, dict | list) and child and random.random() < 0.8:
            node = child
        elif random.random() < 0.4:
            del node[key]
            return record
        else:
            node[key] = random.choice([None, "", 7, True, [], {}, "text", ["text"], {"role": 3}])
            return record


def _difference(before: object, after: object) -> str:
    """The first place where two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if before.get(key) != after.get(key) or (key in before) != (key in after):
                return f"{key}: {_difference(before.get(key), after.get(key))}"
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                return f"[{index}] {_difference(one, other)}"
    return f"{str(before)[:100]!r} became {str(after)[:100]!r}"
