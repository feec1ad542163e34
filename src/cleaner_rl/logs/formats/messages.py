"""A base class for formats whose records hold a list of messages: a subclass says what is different in its logs."""

from __future__ import annotations

from typing import Any, ClassVar

from cleaner_rl.logs.chats import chat_of
from cleaner_rl.logs.fences import are_plain, ends_with, with_calls, without_calls
from cleaner_rl.logs.formats.base import Conversation, Reading, Record, id_in, key_of, log_of, outcome_of
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import Dialect, Reader, Unreadable, all_written
from cleaner_rl.logs.parts import leaves
from cleaner_rl.trajectory import RolloutInfo, TextSpan, Trajectory


class MessagesFormat:
    """Reads and writes records with a list of messages, field for field.

    It keeps every field of a record and of its messages, finds the calls, and judges their results. Task, rollout,
    reward and success are taken from the record's fields with the usual names. A subclass sets `name`, and what is
    different in its logs: `field`, `dialect`, `detects`, or `unpack` and `pack`.

    Examples:
        >>> from cleaner_rl.logs import Dialect, MessagesFormat, Reading
        >>> class Lines(MessagesFormat):
        ...     name, field = "lines", "lines"
        ...     dialect = Dialect(role="who", content="says", assistants=("bot",), users=("person",))
        >>> record = {"lines": [{"who": "person", "says": "1 + 1?"}, {"who": "bot", "says": "2"}]}
        >>> trajectory = Lines().read(record, 0, Reading())
        >>> trajectory.turns[0].text
        '2'
        >>> Lines().write(trajectory) == record
        True
        >>> Lines().chat(trajectory).messages
        [{'role': 'user', 'content': '1 + 1?'}, {'role': 'assistant', 'content': '2'}]
    """

    name: str
    field: ClassVar[str] = "messages"
    """The field of a record that holds its messages."""
    dialect: Dialect = Dialect()
    """The fields of a message, and the names of its speakers."""

    def detects(self, record: object) -> bool:
        """Return whether a record has such messages. Override it: many formats have messages with a role."""
        return isinstance(record, dict) and self.are_messages(self.taken(record, self.field_of(record))[0])

    def are_messages(self, value: object) -> bool:
        """Return whether a field's value is a list of messages."""
        return isinstance(value, list) and all(isinstance(each, dict) and self.dialect.role in each for each in value)

    def field_of(self, record: Record) -> str:  # noqa: ARG002 - for those that override it
        """Return the field of this record that holds its messages. Override it if they are in different ones."""
        return self.field

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the messages of a record, and the record without them."""
        return record.get(field), {**record, field: None}

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with messages: the opposite of `taken`."""
        return {**record, field: messages}

    def unpack(self, message: Message) -> Message:
        """Return a message of the log with its calls in `tool_calls`, as OpenAI has them. Default: as it is.

        The message itself must stay as it is. Raise `Unreadable` if it can't be unpacked.
        """
        return message

    def pack(self, message: Message) -> Message:
        """Return an unpacked message as the log has it: the opposite of `unpack`, field for field."""
        return message

    def tools(self, record: Record) -> Any:
        """Return the tools that a record names, for SFT rows; None if it names none."""
        return record.get("tools") or record.get("functions")

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return all messages unpacked, with fenced commands as calls where the reply says that it is their result."""
        found = list(map(self.unpack, messages))
        return with_calls(found, self.dialect, ends_with, told=True) if are_plain(found) else found

    def pack_all(self, messages: list[Message]) -> list[Message]:
        """Return all messages as the log has them: the opposite of `unpack_all`."""
        return [self.pack(without_calls(message, self.dialect)) for message in messages]

    def system(self, record: Record) -> Any:  # noqa: ARG002 - for those that override it
        """Return the system prompt that a record has beside its messages, as text or parts; None if it has none."""
        return None

    def id_of(self, record: Record) -> str | None:
        """Return the log's own name of a record; None if it has none."""
        return id_in(record)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record; each message of the model is a turn."""
        field = self.field_of(record)
        messages, rest = self.taken(record, field)
        if not self.are_messages(messages):  # a subclass may know its records by something else
            raise Unreadable("a record without a list of messages")
        if self.given_back(rest, field, messages) != record:
            raise Unreadable("a record that would be written differently")
        reader = Reader(reading.tools, self.dialect, reading.call_format, reading.by_words)
        found = reader.read((), self._unpacked(messages))
        reward, success = outcome_of(record)
        log = {"format": self.name, "id": self.id_of(record), "field": field, "record": rest, **found.kept}
        key = key_of(record, number, reading, found.prompt.text)
        return Trajectory(found.prompt, found.turns, key, reward, success, info=RolloutInfo(log=log))

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the record with the messages of the turns."""
        log = log_of(trajectory)
        return self.given_back(log["record"], log["field"], self.pack_all(all_written(trajectory, self.dialect)))

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the messages and tools in OpenAI's form, with the system prompt of the record."""
        record = log_of(trajectory)["record"]
        chat = chat_of(trajectory, self.dialect, self.tools(record))
        system = "\n".join(text for _, text in leaves(self.system(record), ()))
        if system and all(message["role"] != "system" for message in chat.messages):
            chat.messages.insert(0, {"role": "system", "content": system})
            chat.turns.insert(0, None)
        return chat

    def _unpacked(self, messages: list[Message]) -> list[Message]:
        """Return the messages unpacked. Raises `Unreadable` if packing them would not give the same again."""
        try:
            unpacked = self.unpack_all(messages)
            exact = self.pack_all(unpacked) == messages
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise Unreadable("a message with an unknown structure") from None
        if not exact:
            raise Unreadable("a message that would be written differently")
        return unpacked
