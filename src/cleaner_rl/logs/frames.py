"""Keeps a log's messages with their texts moved into spans and everything else as it is.

A message (any JSON object) is kept as a *frame*: the object with a blank at each place whose text is now in a
span, and for each blank the pieces of spans that fill it. So a text is in one place only, an edit moves it as it
moves the span, and whatever else a message holds, understood or not, comes back field for field."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from cleaner_rl.trajectory import Owner

Message: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]
Piece: TypeAlias = tuple[str, int, int | None]
"""Characters `start:end` of the span of this owner; to its end if that is None."""
Spoken: TypeAlias = tuple[int, int, tuple[Path, ...]]
"""Of two lists of entries: the index of one of the second, of one of the first, and the places of their words."""

REASONING, ACTION, OBSERVATION, PROMPT = (
    Owner.REASONING.value,
    Owner.ACTION.value,
    Owner.OBSERVATION.value,
    Owner.PROMPT.value,
)


class Blank(NamedTuple):
    """A place in a message whose text stands elsewhere."""

    path: Path
    pieces: tuple[Piece, ...]


class Frame(NamedTuple):
    """A message without the texts that are in spans."""

    message: Message
    blanks: tuple[Blank, ...]

    def fill(self, texts: Mapping[str, str]) -> Message:
        """Return the message with the texts of these spans. A blank that isn't a string held JSON."""
        message = self.message
        copied: set[Path] = set()
        for path, pieces in self.blanks:
            text = "".join(texts[owner][start:end] for owner, start, end in pieces)
            blank = _at(message, path)
            message = _with(message, path, text if isinstance(blank, str) else json.loads(text), copied)
        return message

    def to_json(self) -> list[Any]:
        """Return it as JSON, for the `log` of a trajectory's info."""
        return [self.message, [[list(path), [list(piece) for piece in pieces]] for path, pieces in self.blanks]]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> Frame:
        """Return the frame that `to_json` wrote."""
        message, blanks = kept
        return cls(message, tuple(Blank(tuple(path), tuple(map(tuple, pieces))) for path, pieces in blanks))


class SpanText:
    """The text of a span while it is put together."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._parts: list[str] = []
        self._length = 0
        self._last = "\n"

    @property
    def text(self) -> str:
        """Return the text so far."""
        return "".join(self._parts)

    @property
    def length(self) -> int:
        """Return the number of characters so far."""
        return self._length

    def glue(self, text: str) -> None:
        """Add words of ours, for readers. They are in no message."""
        self._parts.append(text)
        self._length += len(text)
        self._last = text[-1:] or self._last

    def add(self, text: str) -> Piece:
        """Add a message's text, and return where it is now."""
        start = self._length
        self.glue(text)
        return self._owner, start, self._length

    def add_apart(self, text: str) -> Piece:
        """Add a message's text on a line of its own, and return where it is now."""
        if text and self._last not in " \n":
            self.glue("\n")
        return self.add(text)


def frame(message: Message, blanks: Iterable[Blank]) -> Frame:
    """Return a message as a frame. The message itself is not changed."""
    blanks = tuple(blanks)
    copied: set[Path] = set()
    for path, _ in blanks:
        value = _at(message, path)
        message = _with(message, path, "" if isinstance(value, str) else type(value)(), copied)
    return Frame(message, blanks)


def graft(failed: Frame, correction: Frame, action_fields: Collection[str], sampling_fields: Collection[str]) -> Frame:
    """Return the failed turn's message with the correction's action, without fields on the sampling of either."""
    moved = {name: value for name, value in correction.message.items() if name in action_fields}
    kept = {
        name: value
        for name, value in failed.message.items()
        if name not in action_fields and name not in sampling_fields
    }
    blanks = [blank for blank in failed.blanks if blank.path[0] in kept]
    blanks += [blank for blank in correction.blanks if blank.path[0] in moved]
    return Frame(kept | moved, tuple(blanks))


def graft_parts(grafted: Frame, correction: Frame, name: str, is_action: Callable[[object], bool]) -> Frame:
    """Do the same for a field that is a list with the action among its parts. The correction's parts come last."""
    kept, given = grafted.message[name], correction.message[name]
    stay = [index for index, part in enumerate(kept) if not is_action(part)]
    come = [index for index, part in enumerate(given) if is_action(part)]
    blanks = [blank for blank in grafted.blanks if blank.path[0] != name]
    blanks += _moved(grafted.blanks, name, {index: place for place, index in enumerate(stay)})
    blanks += _moved(correction.blanks, name, {index: place for place, index in enumerate(come, len(stay))})
    parts = [*(kept[index] for index in stay), *(given[index] for index in come)]
    return Frame({**grafted.message, name: parts}, tuple(blanks))


def graft_entries(
    failed: Frame,
    correction: Frame,
    name: str,
    stay: Sequence[int],
    come: Sequence[int],
    spoken: Iterable[Spoken],
    sampling: Iterable[Path],
) -> Frame:
    """Do the same for a field that is a list of log entries: those to `stay` come first, then those to `come`.

    An entry that holds words and a call at once can't be split. `spoken` are such entries of the correction, each with
    the failed one that its words are taken from, and the places of the words. What is at the places of `sampling` is
    true of neither response, and left out.
    """
    kept, given = failed.message[name], list(correction.message[name])
    old, new = list(failed.blanks), list(correction.blanks)
    for place, source, paths in spoken:
        for path in paths:
            new = [each for each in new if each.path[: len(path) + 2] != (name, place, *path)]
            words = _held(kept[source], path)
            given[place] = _without(given[place], path) if words is None else put(given[place], path, words)
            new += [
                Blank((name, place, *each.path[2:]), each.pieces)
                for each in old
                if each.path[: len(path) + 2] == (name, source, *path)
            ]
    blanks = [blank for blank in old if blank.path[0] != name]
    blanks += _moved(old, name, {index: place for place, index in enumerate(stay)})
    blanks += _moved(new, name, {index: place for place, index in enumerate(come, len(stay))})
    entries = [*(kept[index] for index in stay), *(given[index] for index in come)]
    for path in sampling:
        entries = [_without(entry, path) for entry in entries]
    return Frame({**failed.message, name: entries}, tuple(blanks))


def _held(value: Any, path: Path) -> Any:
    """Return what is at a place; None if there is no such place."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def put(entry: Message, path: Path, value: object) -> Message:
    """Return an entry with another value at a place, whether there was one or not."""
    key, *inner = path
    child = entry.get(str(key))
    return {**entry, str(key): put(child if isinstance(child, dict) else {}, tuple(inner), value) if inner else value}


def _without(entry: Message, path: Path) -> Message:
    """Return an entry without the value at a place."""
    if _held(entry, path) is None:
        return entry
    key, *inner = path
    if inner:
        return {**entry, str(key): _without(entry[str(key)], tuple(inner))}
    return {name: value for name, value in entry.items() if name != key}


def _moved(blanks: Iterable[Blank], name: str, places: Mapping[str | int, int]) -> Iterator[Blank]:
    """Yield the blanks in those parts of a field that have a new place."""
    for (field, *inner), pieces in blanks:
        if field == name and inner[0] in places:
            yield Blank((name, places[inner[0]], *inner[1:]), pieces)


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(message: Message, path: Path, leaf: object, copied: set[Path]) -> Message:
    """Return the message with another leaf; only what lies on the way to it is copied, and each container once."""
    if () not in copied:
        message = dict(message)
        copied.add(())
    node: Any = message
    for depth, key in enumerate(path[:-1], 1):
        if path[:depth] not in copied:
            child = node[key]
            node[key] = dict(child) if isinstance(child, dict) else list(child)
            copied.add(path[:depth])
        node = node[key]
    node[path[-1]] = leaf
    return message
