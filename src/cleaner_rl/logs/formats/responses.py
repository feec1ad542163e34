"""`responses`: items of OpenAI's Responses API, as its clients and OpenAI's Agents SDK log them.

A record has the items in `items` (what `to_input_list()` of the Agents SDK returns, or a session's items), in `input`
and `output` (a request with its response), or it is a file: a JSON list of items, or JSONL with an item per line. An
item is a message, `reasoning`, a call (`function_call`, `custom_tool_call`, `local_shell_call`, …) or what the call of
the same `call_id` gave (`function_call_output`, …). The items between two results are a turn. Items are those of
OpenAI's API reference ("Create a model response", input and output).

An item's `status` says whether the item is complete, not whether the call worked, so the text is judged, except of
`apply_patch_call_output` and `mcp_call`, which say it.

Limits: calls that OpenAI ran itself (`web_search_call`, `code_interpreter_call`, …) stay where they are, and such a
record makes no SFT row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cleaner_rl.logs.entries import BORDER, MODEL, RESULT, CallPlaces, EntryKind, ResultPlaces
from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE

SAID = (("content",),)
ID = ("call_id",)
OUTPUT = EntryKind(RESULT, result=ResultPlaces(("output",), ID))
KINDS = {
    "reasoning": EntryKind(MODEL, thinks=(("content",), ("summary",))),
    "function_call": EntryKind(MODEL, call=CallPlaces(("name",), ("arguments",), ID)),
    "function_call_output": OUTPUT,
    "custom_tool_call": EntryKind(MODEL, call=CallPlaces(("name",), ("input",), ID)),
    "custom_tool_call_output": OUTPUT,
    "local_shell_call": EntryKind(MODEL, call=CallPlaces("shell", ("action",), ID)),
    "local_shell_call_output": OUTPUT,
    "shell_call": EntryKind(MODEL, call=CallPlaces("shell", ("action",), ID)),
    "shell_call_output": OUTPUT,
    "apply_patch_call": EntryKind(MODEL, call=CallPlaces("apply_patch", ("operation",), ID)),
    "apply_patch_call_output": EntryKind(RESULT, result=ResultPlaces(("output",), ID, {"status": ("status",)})),
    "mcp_call": EntryKind(
        MODEL,
        call=CallPlaces(("name",), ("arguments",), ("id",)),
        result=ResultPlaces(("output",), ("id",), {"error": ("error",)}),
    ),
    "mcp_list_tools": EntryKind(NOTE),
    "item_reference": EntryKind(BORDER, unread="a reference to an item that is elsewhere"),
    "compaction": EntryKind(BORDER, unread="a conversation that was compacted"),
}
"""What the items hold, by their `type`; messages may have none."""
ROLES = {role: EntryKind(role, SAID) for role in ("assistant", "user", "system", "developer")}
SIGNS = {*KINDS} - {"mcp_list_tools"}
IN_OUTPUT = "cleaner_rl.output"
"""Marks the items of `output` while they follow those of `input`."""


def item_kind(item: Mapping[str, Any]) -> EntryKind:
    """Return what an item holds, and where."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return ROLES.get(str(item.get("role")), EntryKind(BORDER, unread="a message of an unknown role"))
    if kind in KINDS:
        return KINDS[kind]
    return EntryKind(MODEL if kind.endswith("_call") else BORDER, unread=f"an item of the type {kind}")


def unpack_item(item: Message) -> Message:
    """Return an item with its arguments as an object: a custom tool is called with a plain text."""
    if item.get("type") == "custom_tool_call" and isinstance(item.get("input"), str):
        return {**item, "input": {"input": item["input"]}}
    return item


def pack_item(item: Message) -> Message:
    """Return an unpacked item as it is logged."""
    if item.get("type") == "custom_tool_call" and isinstance(item.get("input"), dict):
        return {**item, "input": item["input"]["input"]}
    return item


class ResponsesFormat(EntriesFormat):
    """Reads and writes lists of items."""

    name = "responses"
    fields: ClassVar[tuple[str, ...]] = ("items", "lines", "output")

    def detects(self, record: object) -> bool:
        """Return whether a record has such items, at least one of them a call, its result or reasoning."""
        if not isinstance(record, dict) or not super().detects(record):
            return False
        items, _ = self.taken(record, self.field_of(record))
        known = all("type" in item or "role" in item for item in items)
        return known and any(str(item.get("type")) in SIGNS for item in items)

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what an item holds, and where."""
        return item_kind(entry)

    def unpack(self, message: Message) -> Message:
        """Return an item with its arguments as an object."""
        return unpack_item(message)

    def pack(self, message: Message) -> Message:
        """Return an unpacked item as it is logged."""
        return pack_item(message)

    def taken(self, record: Record, field: str) -> tuple[Any, Record]:
        """Return the items of a record, those of `input` before those of `output`."""
        if field != "output":
            return super().taken(record, field)
        before, after = record.get("input"), record.get("output")
        asked = [{"role": "user", "content": before}] if isinstance(before, str) else ([] if before is None else before)
        if not self.are_messages(asked) or not self.are_messages(after):
            return None, record
        rest = {**record, "output": None, **({} if before is None else {"input": isinstance(before, str)})}
        return [*asked, *({**item, IN_OUTPUT: True} for item in after or [])], rest

    def given_back(self, record: Record, field: str, messages: list[Message]) -> Record:
        """Return the record with its items, each where it was."""
        if field != "output":
            return super().given_back(record, field, messages)
        asked = [item for item in messages if IN_OUTPUT not in item]
        answered = [
            {name: value for name, value in item.items() if name != IN_OUTPUT} for item in messages[len(asked) :]
        ]
        given = {"input": asked[0]["content"] if record["input"] else asked} if record.get("input") is not None else {}
        return {**record, **given, "output": answered}

    def system(self, record: Record) -> Any:
        """Return the instructions of a request."""
        return record.get("instructions")

    def tools(self, record: Record) -> Any:
        """Return the functions among the tools."""
        tools = record.get("tools")
        return (
            [each for each in tools if not isinstance(each, dict) or "name" in each]
            if isinstance(tools, list)
            else tools
        )
