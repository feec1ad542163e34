"""`codex`: sessions of OpenAI's Codex CLI, the files `rollout-*.jsonl` below `~/.codex/sessions`.

The file is the record. A line is `{timestamp, type, payload}`. A payload of the type `response_item` is an item of the
Responses API (see `responses`); `session_meta` has the id of the session and its instructions; `turn_context` and
`event_msg` are kept and say nothing new. So `RolloutItem` and `ResponseItem` of the public repository openai/codex
(`codex-rs/protocol`) have it.

Limits: no repair reaches across a compaction, an interruption or a rollback. What a failed turn's `event_msg` lines
repeat goes with the turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleaner_rl.logs.entries import BORDER, SYSTEM, EntryKind, at
from cleaner_rl.logs.formats.base import LINES, Record
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.formats.responses import item_kind, pack_item, unpack_item
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE

INSTRUCTIONS = (("payload", "base_instructions", "text"), ("payload", "instructions"))
QUIET = {"session_meta", "turn_context", "event_msg", "world_state"}
"""Types of lines that nobody says."""
LOUD = {"turn_aborted", "context_compacted", "thread_rolled_back", "entered_review_mode", "exited_review_mode"}
"""Types of events that a repair must not reach across."""
QUIET_ITEMS = {"ghost_snapshot"}


class CodexFormat(EntriesFormat):
    """Reads and writes session files of Codex."""

    name = "codex"

    def detects(self, record: object) -> bool:
        """Return whether the lines have Codex's envelope, and the first of them is the session's."""
        if not isinstance(record, dict) or not super().detects(record) or not record[LINES]:
            return False
        return record[LINES][0].get("type") == "session_meta" and all("payload" in line for line in record[LINES])

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what a line holds, and where."""
        kind, payload = str(entry.get("type")), entry.get("payload")
        if kind == "session_meta" and any(isinstance(at(entry, place), str) for place in INSTRUCTIONS):
            return EntryKind(SYSTEM, INSTRUCTIONS)
        inner = str(payload.get("type")) if isinstance(payload, dict) else ""
        if kind == "response_item" and isinstance(payload, dict) and inner not in QUIET_ITEMS:
            return item_kind(payload).under("payload")
        return EntryKind(NOTE if (kind in QUIET or inner in QUIET_ITEMS) and inner not in LOUD else BORDER)

    def unpack(self, message: Message) -> Message:
        """Return a line with the arguments of its item as an object."""
        item = message.get("payload")
        return {**message, "payload": unpack_item(item)} if isinstance(item, dict) else message

    def pack(self, message: Message) -> Message:
        """Return an unpacked line as it is logged."""
        item = message.get("payload")
        return {**message, "payload": pack_item(item)} if isinstance(item, dict) else message

    def id_of(self, record: Record) -> str | None:
        """Return the id of the session."""
        found = at(record[LINES], (0, "payload", "id"))
        return found if isinstance(found, str) else None
