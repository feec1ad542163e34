"""`claude-code`: sessions of Claude Code, the files `<session id>.jsonl` below `~/.claude/projects`.

The file is the record. Lines of the types `user` and `assistant` hold a `message` in the form of Anthropic's API, as a
rule with one part of its content each; lines with the same `message.id` are one response. Every other line is
bookkeeping. After an edit, a line whose `parentUuid` is gone names the next earlier one that is still there. Anthropic
documents where the files are ("Manage sessions"); the fields are those of published sessions and of public readers of
them (for example skillsynchq/txcript's description of the format), and may change with each release.

A result says in `is_error` how the call ended.

Limits: lines of subagents (`isSidechain`) in the file of another session are kept and not looked into. A session that
a person rewound has branches and is passed through. Attachments, which Claude Code shows to the model, end what a
repair can reach, and are not in SFT rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from cleaner_rl.logs.entries import BORDER, MODEL, RESULT, USER, CallPlaces, EntryKind, ResultPlaces, at
from cleaner_rl.logs.formats.base import LINES, Record, log_of
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.frames import Message
from cleaner_rl.logs.messages import NOTE, Unreadable
from cleaner_rl.trajectory import TextSpan, Trajectory

CONTENT = ("message", "content")
PART = (*CONTENT, 0)
"""The content's only part: lines with several are split while they are read."""
SPEAKERS = ("user", "assistant")
CALL = EntryKind(MODEL, call=CallPlaces((*PART, "name"), (*PART, "input"), (*PART, "id")))
ANSWER = EntryKind(
    RESULT, result=ResultPlaces((*PART, "content"), (*PART, "tool_use_id"), {"is_error": (*PART, "is_error")})
)
WORDS = {"user": EntryKind(USER, (CONTENT,)), "assistant": EntryKind(MODEL, (CONTENT,))}
THOUGHT = EntryKind(MODEL, thinks=(CONTENT,))
SYNTHETIC = "<synthetic>"
"""The model of lines that Claude Code wrote in the model's place, after an error of the API."""
QUIET = {
    *("file-history-snapshot", "progress", "queue-operation", "summary", "last-prompt", "system"),
    *("ai-title", "custom-title", "agent-name", "permission-mode", "mode", "pr-link"),
}
"""Types of lines that a repair may take out with a turn. Any other one ends what it can reach."""
LOUD = {"compact_boundary", "microcompact_boundary"}
"""Subtypes of `system` that do so too."""
ASIDE = "cleaner_rl.aside"
"""Marks lines of subagents while a record is read."""


class ClaudeCodeFormat(EntriesFormat):
    """Reads and writes session files of Claude Code."""

    name = "claude-code"
    response = ("message", "id")
    sampling = (("message", "usage"), ("requestId",))

    def detects(self, record: object) -> bool:
        """Return whether one of the lines has a message in Claude Code's envelope."""
        return isinstance(record, dict) and super().detects(record) and any(map(_is_spoken, record[LINES]))

    def kind_of(self, entry: Mapping[str, Any]) -> EntryKind:
        """Return what a line holds, and where."""
        if not _is_spoken(entry):
            quiet = str(entry.get("type")) in QUIET and str(entry.get("subtype")) not in LOUD
            return EntryKind(NOTE if quiet else BORDER)
        if ASIDE in entry or at(entry, ("message", "model")) == SYNTHETIC:
            return EntryKind(BORDER)
        kind = at(entry, (*PART, "type"))
        if entry["type"] == "assistant" and kind == "tool_use":
            return CALL
        if entry["type"] == "assistant" and kind in ("thinking", "redacted_thinking"):
            return THOUGHT if kind == "thinking" else EntryKind(MODEL)
        return ANSWER if kind == "tool_result" else WORDS[entry["type"]]

    def unpack_all(self, messages: list[Message]) -> list[Message]:
        """Return the lines as messages, those with several parts split. Raises `Unreadable` if there are branches."""
        spoken = [line for line in messages if _is_spoken(line)]
        main = any(not line.get("isSidechain") for line in spoken)
        lines = [{**line, ASIDE: True} if main and line.get("isSidechain") else line for line in messages]
        if _has_branches(lines):
            raise Unreadable("a session with branches")
        return super().unpack_all([part for line in lines for part in _split(line)])

    def pack_all(self, messages: list[Message]) -> list[Message]:
        """Return the lines of all messages, those that were split in one again."""
        lines: list[Message] = []
        for part in super().pack_all(messages):
            if lines and "uuid" in part and part["uuid"] == lines[-1].get("uuid"):
                lines[-1] = _with_content(lines[-1], [*at(lines[-1], CONTENT), *at(part, CONTENT)])
            else:
                lines.append(part)
        return [{name: value for name, value in line.items() if name != ASIDE} for line in lines]

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the lines of the turns, each with a parent that is there."""
        record = super().write(trajectory)
        parents = {line["uuid"]: line.get("parentUuid") for line in _all_lines(log_of(trajectory)) if _is_named(line)}
        there = {line["uuid"] for line in record[LINES] if _is_named(line)}

        def linked(line: Message) -> Message:
            parent = line.get("parentUuid")
            while isinstance(parent, str) and parent not in there and parent in parents:
                parent = parents[parent]
            return line if parent == line.get("parentUuid") else {**line, "parentUuid": parent}

        return {**record, LINES: list(map(linked, record[LINES]))}

    def id_of(self, record: Record) -> str | None:
        """Return the id of the session."""
        ids = (line.get("sessionId") for line in record[LINES])
        return next((each for each in ids if isinstance(each, str)), None)


def _is_spoken(line: Mapping[str, Any]) -> bool:
    message = line.get("message")
    return (
        line.get("type") in SPEAKERS
        and isinstance(message, dict)
        and isinstance(message.get("content"), str | list)
        and _is_named(line)
    )


def _is_named(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("uuid"), str)


def _has_branches(lines: list[Message]) -> bool:
    """Return whether a person spoke twice after the same line. Results of parallel calls may follow the same one."""
    asked = Counter(
        line["parentUuid"]
        for line in lines
        if _is_spoken(line)
        and line["type"] == "user"
        and isinstance(line.get("parentUuid"), str)
        and ASIDE not in line
        and not line.get("isMeta")
        and at(line, (*PART, "type")) != "tool_result"
    )
    return any(count > 1 for count in asked.values())


def _split(line: Message) -> Iterator[Message]:
    content = at(line, CONTENT) if _is_spoken(line) else None
    if not isinstance(content, list) or len(content) < 2:
        yield line
        return
    for part in content:
        yield _with_content(line, [part])


def _with_content(line: Message, content: list[Any]) -> Message:
    return {**line, "message": {**line["message"], "content": content}}


def _all_lines(log: Mapping[str, Any]) -> Iterator[Message]:
    """Yield every line that was read, also of turns that are gone."""
    for message, _ in chain(log["prompt"], *log["turns"]):
        yield from message["content"]
