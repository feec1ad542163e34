"""Reads logs that are a list of entries, each of one kind: words, a call, a result, or a note.

Coding agents log this way: a line, an event or an item for each thing that happens. A format says once for each kind of
entry where its words, its call or its result are (`EntryKind`). The entries of one turn become one message, whose
content is the list of the entries as they are, so that they come back field for field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from cleaner_rl.logs.frames import Frame, Message, Path, graft_entries, put
from cleaner_rl.logs.messages import NOTE, Dialect
from cleaner_rl.logs.parts import Found, Told, leaves, parts_of, unread

MODEL, RESULT, USER, SYSTEM = "assistant", "tool", "user", "system"
"""Who speaks in an entry, in OpenAI's words."""
BORDER = "border"
"""An entry that nobody says and that no repair may take out."""


class CallPlaces(NamedTuple):
    """Where an entry has a call."""

    name: Path | str
    """A place, or the name itself."""
    arguments: Path
    call_id: Path


class ResultPlaces(NamedTuple):
    """Where an entry has what a call gave."""

    content: Path
    call_id: Path
    fields: Mapping[str, Path] = {}
    """By the names that `judging` knows, the places of the fields that say how the call ended."""
    failed: bool = False
    """Whether entries of this kind are of failed calls alone."""


@dataclass(frozen=True, slots=True)
class EntryKind:
    """What entries of one kind hold, and where."""

    speaker: str = NOTE
    says: tuple[Path, ...] = ()
    thinks: tuple[Path, ...] = ()
    call: CallPlaces | None = None
    result: ResultPlaces | None = None
    unread: str | None = None
    """What it holds that a chat can't hold; None if there is no such thing."""

    def under(self, *path: str) -> EntryKind:
        """Return the same kind for entries that hold all this at a place."""
        call, result = self.call, self.result
        if call is not None:
            name = call.name if isinstance(call.name, str) else (*path, *call.name)
            call = CallPlaces(name, (*path, *call.arguments), (*path, *call.call_id))
        if result is not None:
            fields = {name: (*path, *place) for name, place in result.fields.items()}
            result = ResultPlaces((*path, *result.content), (*path, *result.call_id), fields, result.failed)
        says, thinks = (tuple((*path, *place) for place in places) for places in (self.says, self.thinks))
        return EntryKind(self.speaker, says, thinks, call, result, self.unread)


KindOf: TypeAlias = Callable[[Mapping[str, Any]], EntryKind]


class EntryParts:
    """Reads contents that are lists of entries."""

    answered = True

    def __init__(self, kind_of: KindOf, sampling: tuple[Path, ...] = ()) -> None:
        self._kind_of, self._sampling = kind_of, sampling

    def texts(self, content: object, path: Path) -> Iterator[tuple[Path, str]]:
        """Yield the words and thoughts of the entries, and where they are."""
        for index, entry, kind in self._entries(content):
            for place in (*kind.thinks, *kind.says):
                yield from leaves(at(entry, place), (*path, index, *place))

    def is_thought(self, content: object, path: Path) -> bool:
        """Return whether the text at this place is a thought."""
        index, *inner = path
        (kind,) = (kind for each, _, kind in self._entries(content) if each == index)
        return any(tuple(inner[: len(place)]) == place for place in kind.thinks)

    def calls(self, content: object, path: Path) -> Iterator[Found]:
        """Yield the calls among the entries."""
        for index, entry, kind in self._entries(content):
            if kind.call is not None:
                name = kind.call.name if isinstance(kind.call.name, str) else at(entry, kind.call.name)
                found = name if isinstance(name, str) else "", at(entry, kind.call.arguments)
                yield (*path, index, *kind.call.arguments), at(entry, kind.call.call_id), *found

    def results(self, content: object, path: Path) -> Iterator[Told]:
        """Yield the results among the entries."""
        for index, entry, kind in self._entries(content):
            if kind.result is not None:
                place = kind.result.content
                texts = list(leaves(at(entry, place), (*path, index, *place)))
                yield Told(at(entry, kind.result.call_id), texts, _outcome(entry, kind.result))

    def grafted(self, failed: Frame, correction: Frame, name: str) -> Frame:
        """Return the failed turn's words with the correction's calls and results."""
        stay, spoken = [], []
        for index, _, kind in self._entries(failed.message[name]):
            if kind.call is not None:
                spoken.append(index)
            elif kind.speaker == MODEL:
                stay.append(index)
        come, taken = [], []
        for index, _, kind in self._entries(correction.message[name]):
            if kind.call is not None:
                taken.append((index, (*kind.says, *kind.thinks)))
            if kind.call is not None or kind.speaker != MODEL:
                come.append(index)
        pairs = [(place, source, paths) for (place, paths), source in zip(taken, spoken, strict=False)]
        return graft_entries(failed, correction, name, stay, come, pairs, self._sampling)

    def unread(self, content: object, *, calls: bool, results: bool) -> str | None:  # noqa: ARG002 - kinds say it
        """Return what the entries hold that a chat can't hold; None if there is nothing else."""
        for _, entry, kind in self._entries(content):
            places = (*kind.says, *kind.thinks, *(() if kind.result is None else (kind.result.content,)))
            found = kind.unread or next(filter(None, (unread(at(entry, place)) for place in places)), None)
            if found is not None:
                return found
        return None

    def _entries(self, content: object) -> Iterator[tuple[int, Mapping[str, Any], EntryKind]]:
        for index, entry in parts_of(content):
            yield index, entry, self._kind_of(entry)


def entry_dialect(kind_of: KindOf, sampling: tuple[Path, ...] = ()) -> Dialect:
    """Return the dialect of messages that are made of entries, which say at these places how they were sampled."""
    return Dialect(parts=EntryParts(kind_of, sampling), notes=(NOTE, BORDER))


def grouped(entries: Sequence[Message], kind_of: KindOf, response: Path | None) -> list[Message]:
    """Return entries as messages: one for each turn of the model with the results of its calls, one for any other.

    Entries of the model belong to one turn if they have the same value at `response`, or, where the log has none there,
    if there is no result between them.
    """
    messages: list[Message] = []
    turn: list[Message] | None = None
    current: object = None
    answered = False
    for entry in entries:
        kind = kind_of(entry)
        if kind.speaker == MODEL:
            found = None if response is None else at(entry, response)
            if turn is None or (answered if found is None else found != current):
                turn, answered = [], False
                messages.append({"role": MODEL, "content": turn})
            current = found
        if turn is not None and kind.speaker in (MODEL, RESULT, NOTE):
            turn.append(entry)
            answered = answered or kind.result is not None
        else:
            turn = None
            messages.append({"role": kind.speaker, "content": [entry]})
    return messages


def ungrouped(messages: Sequence[Message], kind_of: KindOf, response: Path | None) -> Iterator[Message]:
    """Yield the entries of all messages. A turn that was put together of two responses becomes one of the later one."""
    for message in messages:
        entries = message["content"]
        if response is not None and message["role"] == MODEL:
            *_, last = (at(entry, response) for entry in entries if kind_of(entry).speaker == MODEL)
            for entry in entries:
                other = kind_of(entry).speaker == MODEL and at(entry, response) != last
                yield put(entry, response, last) if other else entry
        else:
            yield from entries


def at(entry: Any, path: Path) -> Any:
    """Return what is at a place of an entry; None if there is no such place."""
    for key in path:
        if isinstance(entry, Mapping):
            entry = entry.get(key)
        elif isinstance(entry, list) and isinstance(key, int) and key < len(entry):
            entry = entry[key]
        else:
            return None
    return entry


def _outcome(entry: Mapping[str, Any], places: ResultPlaces) -> Mapping[str, Any]:
    found = {name: at(entry, place) for name, place in places.fields.items()}
    if isinstance(found.get("exit_code"), int):
        found.pop("is_error", None)  # it says whether the tool broke, the exit code whether the program did
    return {**found, "is_error": True} if places.failed else found
