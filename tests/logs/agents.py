"""The cases as agents log them: session files, events, items. Written to the formats' public descriptions."""

from __future__ import annotations

import json
from typing import Any

from tests.logs.cases import Call, Case
from tests.logs.rendering import QUESTION, TOOLS, Record

TIME = "2026-10-01T10:00:00.000Z"


def claude_code(case: Case, *, split: bool = True) -> Record:
    """A line for each part of a response, or one for all of them, as older versions write it."""
    lines: list[Record] = [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}]
    last: str | None = None

    def add(kind: str, message: Record, **more: Any) -> None:
        nonlocal last
        uuid = f"u{len(lines)}"
        line = {"parentUuid": last, "isSidechain": False, "cwd": "/w", "sessionId": "s-1", "version": "2.1.150"}
        lines.append({**line, "type": kind, "message": message, "uuid": uuid, "timestamp": TIME, **more})
        last = uuid

    add("user", {"role": "user", "content": QUESTION})
    for number, step in enumerate(case.steps):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        parts: list[Record] = [thought, {"type": "text", "text": step.said}]
        for index, call in enumerate(step.calls):
            parts.append({"type": "tool_use", "id": f"t{number}{index}", "name": call.name, "input": call.arguments})
        response = {"model": "claude", "id": f"msg_{number}", "type": "message", "role": "assistant"}
        for some in [[part] for part in parts] if split else [parts]:
            add("assistant", {**response, "content": some, "usage": {"output_tokens": 5}}, requestId=f"r{number}")
        for index, call in enumerate(step.calls):
            result = {"tool_use_id": f"t{number}{index}", "type": "tool_result", "content": call.text}
            add("user", {"role": "user", "content": [result]}, toolUseResult={"stdout": call.text})
        if step.then:
            add("user", {"role": "user", "content": [{"type": "text", "text": step.then}]})
    return {"lines": [*lines, {"type": "last-prompt", "lastPrompt": QUESTION, "sessionId": "s-1"}]}


def claude_code_whole(case: Case) -> Record:
    return claude_code(case, split=False)


def items(case: Case, *, custom: bool = False) -> list[Record]:
    """Items of OpenAI's Responses API; `custom`: programs are plain texts, for a custom tool."""
    found: list[Record] = [{"role": "user", "content": QUESTION}]
    for number, step in enumerate(case.steps):
        found.append({"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": "Hm."}]})
        said = [{"type": "output_text", "text": step.said, "annotations": []}]
        found.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": said})
        plain = custom and all(isinstance(call.arguments.get("code"), str) for call in step.calls)
        found += [_item(call, f"c{number}{index}", plain) for index, call in enumerate(step.calls)]
        kind = f"{'custom_tool' if plain else 'function'}_call_output"
        found += [
            {"type": kind, "call_id": f"c{number}{index}", "output": call.text} for index, call in enumerate(step.calls)
        ]
        if step.then:
            found.append({"role": "user", "content": [{"type": "input_text", "text": step.then}]})
    return found


def _item(call: Call, call_id: str, custom: bool) -> Record:
    if custom:
        return {"type": "custom_tool_call", "call_id": call_id, "name": call.name, "input": call.arguments["code"]}
    arguments = json.dumps(call.arguments)
    return {"type": "function_call", "id": "fc", "call_id": call_id, "name": call.name, "arguments": arguments}


def agents_sdk(case: Case) -> Record:
    return {"items": items(case), "reward": case.reward}


def agents_sdk_file(case: Case) -> Record:
    return {"lines": items(case, custom=True)}


def responses(case: Case) -> Record:
    found = items(case)
    function = {"type": "function", **TOOLS[0]["function"]}
    last = next(index for index in reversed(range(len(found))) if found[index].get("type") == "reasoning")
    return {
        "id": "resp_1",
        "object": "response",
        "instructions": "Be brief.",
        "tools": [function, {"type": "web_search"}],
        "input": found[:last],
        "output": found[last:],
        "reward": case.reward,
    }


def codex(case: Case) -> Record:
    meta = {"id": "s-1", "cwd": "/w", "cli_version": "0.60", "base_instructions": {"text": "Be brief."}}
    lines = [("session_meta", meta), ("turn_context", {"cwd": "/w", "model": "gpt-5.1"})]
    for item in items(case, custom=True):
        lines.append(("response_item", {"type": "message", **item}))
        if item.get("role") == "assistant":
            lines.append(("event_msg", {"type": "agent_message", "message": item["content"][0]["text"]}))
    return {"lines": [{"timestamp": TIME, "type": kind, "payload": payload} for kind, payload in lines]}


AGENTS = {
    "claude-code": claude_code,
    "claude-code, whole": claude_code_whole,
    "responses": responses,
    "responses, items": agents_sdk,
    "responses, file": agents_sdk_file,
    "codex": codex,
}
"""By the format's name; after a comma, the variant. A record with `lines` is a file."""
