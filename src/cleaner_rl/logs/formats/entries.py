"""A base class for formats whose records are lists of entries: a subclass says where each kind holds what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cleaner_rl.logs.entries import EntryKind, entry_dialect, grouped, ungrouped
from cleaner_rl.logs.formats.base import LINES, Record
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.frames import Message, Path


class EntriesFormat(MessagesFormat):
    """Reads and writes records that are lists of entries, such as the lines of a session file.

    A subclass sets `name` and `fields`, and gives `kind_of`. It sets `response` if the log says which entries the model
    wrote in one response, and overrides `unpack` and `pack` if an entry's own form has to be changed first.
    """

    reads_files = True
    fields: ClassVar[tuple[str, ...]] = (LINES,)
    """The fields that may hold the entries."""
    response: ClassVar[Path | None] = None
    """Where an entry has the id of the response that it is of."""
    sampling: ClassVar[tuple[Path, ...]] = ()
    """Where an entry has what describes its sampling."""

    def __init__(self) -> None:
        self.dialect = entry_dialect(self.kind_of, self.sampling)

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what an entry holds, and where."""
        raise NotImplementedError

    def field_of(self, record: Record) -> str:
        """Return the first of the fields that holds a list."""
        return next((name for name in self.fields if isinstance(record.get(name), list)), self.fields[0])

    def are_messages(self, value: object) -> bool:
        """Return whether a field's value is a list of entries."""
        return isinstance(value, list) and all(isinstance(each, dict) for each in value)

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the entries as messages: one for each turn, one for any other entry."""
        return grouped(list(map(self.unpack, messages)), self.kind_of, self.response)

    def pack_all(self, messages: list[Message]) -> list[Message]:
        """Return the entries of all messages, as the log has them."""
        return list(map(self.pack, ungrouped(messages, self.kind_of, self.response)))
