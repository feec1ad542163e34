"""How one field of a record becomes a column and a JSON value, and how it is read back.

A codec knows all four directions for one kind of value. `Struct` and `Lists` build codecs out of others, so `record`
can declare each field once, and the Arrow schema, the columns, the rows and the JSONL lines follow from that.

No Python runs per token: arrays are joined with one `concatenate` per column and read back as views of its memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import isfinite
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

Json = Any
EnumType: TypeAlias = type[StrEnum]
PYTHON = {pa.string(): str, pa.bool_(): bool, pa.int32(): int, pa.int64(): int}
"""The type of a plain value in Python, by the type of its column."""
INT_BITS = 63
_encoder, _decoder = json.JSONEncoder(), json.JSONDecoder()


class Codec(Protocol):
    """One kind of value: its Arrow type, and both ways between values, columns and JSON. None is null everywhere."""

    @property
    def type(self) -> pa.DataType:
        """The type of its columns."""
        ...

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        ...

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        ...

    def to_json(self, value: Any) -> Json:
        """One value for JSONL."""
        ...

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Texts, whole numbers and booleans."""

    type: pa.DataType

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        return pa.array(values, self.type)

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        found: list[Any] = [None] * len(column) if column.null_count == len(column) else column.to_pylist()
        return found

    def to_json(self, value: Any) -> Json:
        """As it is."""
        return value

    def from_json(self, value: Json) -> Any:
        """As it is. A value that a column could not hold is an error here too, because JSON itself takes any."""
        fits = not isinstance(value, int) or value.bit_length() <= INT_BITS
        if value is not None and not (isinstance(value, PYTHON[self.type]) and fits):
            raise TypeError(f"a {type(value).__name__} where {self.type} is stored")
        return value


class Number(Plain):
    """Floats. One that JSON can't spell is a string there."""

    def to_json(self, value: Any) -> Json:
        """NaN and the infinities as strings."""
        return _spelt(value)

    def from_json(self, value: Json) -> Any:
        """A string is one of those."""
        return float(value) if isinstance(value, str) else value


class _Members(dict[Any, StrEnum | None]):
    """An enum's members by their values: a dict is many times as fast as the enum's own call."""

    def __init__(self, kind: EnumType) -> None:
        super().__init__({each.value: each for each in kind})
        self[None] = None
        self._kind = kind

    def __missing__(self, value: str) -> StrEnum:
        return self._kind(value)  # which says what is wrong


class Choice:
    """Members of an enum, by their values."""

    def __init__(self, kind: EnumType) -> None:
        self._members = _Members(kind)

    @property
    def type(self) -> pa.DataType:
        """The member's value."""
        return pa.string()

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        return pa.array(values, self.type)

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        if column.null_count == len(column):
            return [None] * len(column)
        return list(map(self._members.__getitem__, column.to_pylist()))

    def to_json(self, value: Any) -> Json:
        """A string already."""
        return value

    def from_json(self, value: Json) -> Any:
        """The member."""
        return self._members[value]


@dataclass(frozen=True, slots=True)
class Mappings:
    """Mappings whose keys differ from row to row, as JSON in a string."""

    pack: Callable[[Any], Mapping[str, Any]] = dict
    unpack: Callable[[dict[str, Any]], Any] = lambda mapping: mapping
    """What to make of a value before it is stored, and of a mapping that was read."""

    @property
    def type(self) -> pa.DataType:
        """JSON in a string."""
        return pa.string()

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        return pa.array([self.to_json(value) for value in values], self.type)

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values; each different text is read once, because many are alike."""
        texts = column.to_pylist()
        if len(different := set(texts)) > len(texts) // 2:
            return [self.from_json(text) for text in texts]
        known = {text: self.from_json(text) for text in different}
        return [known[text] for text in texts]

    def to_json(self, value: Any) -> Json:
        """The same string as in a column."""
        if value is None:
            return None
        mapping = self.pack(value)
        return _encoder.encode(mapping) if mapping else "{}"

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        if value is None:
            return None
        return self.unpack({} if value == "{}" else _decoder.raw_decode(value)[0])


@dataclass(frozen=True, slots=True)
class Arrays:
    """Token ids or log-probs: lists of numbers that are read as read-only views of the column."""

    item: pa.DataType
    kind: type[np.generic]

    @property
    def type(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.item)

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        present = [array for array in values if array is not None]
        joined = np.concatenate(present) if present else np.empty(0, self.kind)
        return _lists(values, pa.array(joined, self.item))

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        if column.null_count == len(column):
            return [None] * len(column)
        bounds, items = _bounds(column)
        array = items.to_numpy(zero_copy_only=True)
        return _where_valid(column, [array[start:end] for start, end in bounds])

    def to_json(self, value: Any) -> Json:
        """A list of numbers."""
        if value is None:
            return None
        numbers = value.tolist()
        return numbers if np.isfinite(value).all() else [_spelt(number) for number in numbers]

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        if value is None:
            return None
        array = np.array(value, self.kind)
        array.setflags(write=False)
        return array


@dataclass(frozen=True, slots=True)
class Lists:
    """Tuples of what another codec knows."""

    item: Codec

    @property
    def type(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.item.type)

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        return _lists(values, self.item.column([item for value in values if value is not None for item in value]))

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        bounds, items = _bounds(column)
        all_items = self.item.values(items)
        return _where_valid(column, [tuple(all_items[start:end]) for start, end in bounds])

    def to_json(self, value: Any) -> Json:
        """A list."""
        return [self.item.to_json(item) for item in value]

    def from_json(self, value: Json) -> Any:
        """A tuple."""
        return tuple(self.item.from_json(item) for item in value)


class Only(StrEnum):
    """The one format that has a field."""

    ARROW = "arrow"
    JSON = "json"


class Field:
    """One field of a struct: its name, its codec, and how to get it from the value (by default the attribute)."""

    __slots__ = ("codec", "get", "name", "only")

    def __init__(
        self, name: str, codec: Codec, get: Callable[[Any], Any] | str | None = None, only: Only | None = None
    ) -> None:
        self.name, self.codec, self.only = name, codec, only
        self.get = get if callable(get) else attrgetter(get or name)


class Struct:
    """A record of fields. `make` takes them in order; one that a format doesn't have is an empty tuple there."""

    def __init__(self, make: Callable[..., Any], fields: Iterable[Field]) -> None:
        self.make, self.fields = make, tuple(fields)
        self._columns = [field for field in self.fields if field.only is not Only.JSON]
        self.type = pa.struct([(field.name, field.codec.type) for field in self._columns])

    def arrays(self, values: Sequence[Any], missing: Sequence[bool] = ()) -> list[pa.Array]:
        """One column for each field; `missing` says which of the values are None, if any is."""
        if not missing:
            return [field.codec.column(list(map(field.get, values))) for field in self._columns]
        return [
            field.codec.column([None if value is None else field.get(value) for value in values])
            for field in self._columns
        ]

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        missing = _missing(values)
        if not missing:
            return pa.StructArray.from_arrays(self.arrays(values), fields=list(self.type))
        if all(missing):
            return pa.nulls(len(values), self.type)
        mask = pa.array(missing, pa.bool_())
        return pa.StructArray.from_arrays(self.arrays(values, missing), fields=list(self.type), mask=mask)

    def rows(self, columns: Mapping[str, pa.Array], count: int) -> Iterable[tuple[Any, ...]]:
        """For each value what `make` takes."""
        parts = (
            [()] * count if field.only is Only.JSON else field.codec.values(columns[field.name])
            for field in self.fields
        )
        return zip(*parts, strict=True)

    def values(self, column: pa.Array) -> Sequence[Any]:
        """A column as values."""
        if column.null_count == len(column):
            return [None] * len(column)
        make = self.make
        columns = {field.name: column.field(field.name) for field in self._columns}
        rows = self.rows(columns, len(column))
        if not column.null_count:
            return [make(*row) for row in rows]
        valid = column.is_valid().to_pylist()
        return [make(*row) if there else None for there, row in zip(valid, rows, strict=True)]

    def to_json(self, value: Any) -> Json:
        """An object."""
        if value is None:
            return None
        return {
            field.name: field.codec.to_json(field.get(value)) for field in self.fields if field.only is not Only.ARROW
        }

    def from_json(self, value: Json) -> Any:
        """The opposite of `to_json`."""
        if value is None:
            return None
        return self.make(
            *(() if field.only is Only.ARROW else field.codec.from_json(value[field.name]) for field in self.fields)
        )


def _spelt(value: float | None) -> float | str | None:
    if value is None or isfinite(value):
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def _lists(values: Sequence[Any], items: pa.Array) -> pa.Array:
    """Lists around these items, as long as the values are; null where one is None."""
    missing = _missing(values)
    lengths = [0 if value is None else len(value) for value in values] if missing else list(map(len, values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = pa.array(missing, pa.bool_()) if missing else None
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)


def _missing(values: Sequence[Any]) -> list[bool]:
    """Which of them are None; empty if none is. Not by `in`, which would compare the values."""
    missing = [value is None for value in values]
    return missing if True in missing else []


def _bounds(lists: pa.ListArray) -> tuple[list[tuple[int, int]], Any]:
    """Where each list begins and ends in the items, and the items."""
    offsets = lists.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    # A slice of a longer array shows the items of all of it.
    return list(pairwise((offsets - start).tolist())), lists.values.slice(start, end - start)


def _where_valid(column: pa.Array, values: list[Any]) -> list[Any]:
    if not column.null_count:
        return values
    return [each if there else None for each, there in zip(values, column.is_valid().to_pylist(), strict=True)]
