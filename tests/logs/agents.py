"""The cases as agents log them: session files, events, items. Written to the formats' public descriptions."""

from __future__ import annotations

import json
from typing import Any

from tests.logs.cases import Call, Case
from tests.logs.rendering import QUESTION, TOOLS, Record, openai

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


def session_trace(case: Case) -> Record:
    lines: list[Record] = [{"type": "session", "harness": "my-agent", "id": "s-1", "name": "a sum"}]
    for message in openai(case)["messages"]:
        names = {"tool_calls": "toolCalls", "tool_call_id": "toolCallId"}
        found = {names.get(name, name): value for name, value in message.items()}
        for call in found.get("toolCalls", ()):
            del call["type"]
        thought = {"reasoningContent": "Hm."} if found["role"] == "assistant" else {}
        lines.append({"type": "message", "message": {**found, **thought, "timestamp": 1_760_000_000_000}})
    return {"lines": lines}


def pi(case: Case) -> Record:
    lines: list[Record] = [{"type": "session", "version": 3, "id": "s-1", "timestamp": TIME, "cwd": "/w"}]

    def add(message: Record) -> None:
        parent = lines[-1]["id"] if len(lines) > 1 else None
        lines.append({"type": "message", "id": f"e{len(lines)}", "parentId": parent, "message": message})

    add({"role": "user", "content": QUESTION, "timestamp": 1})
    for number, step in enumerate(case.steps):
        parts: list[Record] = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": step.said}]
        for index, call in enumerate(step.calls):
            parts.append(
                {"type": "toolCall", "id": f"c{number}{index}", "name": call.name, "arguments": call.arguments}
            )
        add({"role": "assistant", "content": parts, "usage": {"input": 1}, "stopReason": "toolUse", "timestamp": 2})
        for index, call in enumerate(step.calls):
            result = {"role": "toolResult", "toolCallId": f"c{number}{index}", "toolName": call.name}
            add({**result, "content": [{"type": "text", "text": call.text}]})
        if step.then:
            add({"role": "user", "content": step.then})
    return {"lines": lines}


def openhands(case: Case) -> Record:
    """Version 1, in a row."""
    prompt = {"type": "text", "text": "Be brief."}
    events: list[Record] = [{"kind": "SystemPromptEvent", "id": "s", "source": "agent", "system_prompt": prompt}]

    def say(source: str, text: str) -> None:
        role = {"user": "user", "agent": "assistant"}[source]
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        events.append({"kind": "MessageEvent", "id": f"m{len(events)}", "source": source, "llm_message": message})

    say("user", QUESTION)
    for number, step in enumerate(case.steps):
        if not step.calls:
            say("agent", step.said)
        for index, call in enumerate(step.calls):
            ids = {"tool_name": call.name, "tool_call_id": f"c{number}{index}"}
            thought = [] if index else [{"type": "text", "text": step.said, "cache_prompt": False}]
            called = {"id": f"c{number}{index}", "name": call.name, "arguments": json.dumps(call.arguments)}
            action = {"thought": thought, "action": {**call.arguments, "kind": "MadeAction"}, "tool_call": called}
            event = {"kind": "ActionEvent", "id": f"a{number}{index}", "source": "agent"}
            events.append({**event, **action, **ids, "llm_response_id": f"r{number}"})
            seen = {"kind": "MadeObservation", "content": [{"type": "text", "text": call.text}], "exit_code": None}
            event = {"kind": "ObservationEvent", "id": f"o{number}{index}", "source": "environment"}
            events.append({**event, **ids, "action_id": f"a{number}{index}", "observation": seen})
        if step.then:
            say("user", step.then)
    return {"instance_id": "sum-1", "instruction": QUESTION, "history": events, "reward": case.reward}


def openhands_0(case: Case) -> Record:
    """Version 0, in a file."""
    events: list[Record] = []

    def add(source: str, **event: Any) -> None:
        events.append({"id": len(events), "timestamp": TIME, "source": source, **event})

    add("user", action="message", args={"content": QUESTION, "image_urls": None, "wait_for_response": False})
    for number, step in enumerate(case.steps):
        if not step.calls:
            add("agent", action="message", args={"content": step.said})
        for index, call in enumerate(step.calls):
            ids = {"function_name": call.name, "tool_call_id": f"c{number}{index}"}
            about = {**ids, "total_calls_in_response": len(step.calls)}
            thought = {} if index else {"thought": step.said}
            args = {**call.arguments, **thought, "confirmation_state": "confirmed"}
            add("agent", action="run_ipython", args=args, tool_call_metadata=about)
            add("agent", observation="run_ipython", content=call.text, extras={}, tool_call_metadata=about)
        if step.then:
            add("user", action="message", args={"content": step.then})
    return {"lines": events}


def swe_agent(case: Case) -> Record:
    history: list[Record] = [
        {"role": "system", "content": "Be brief.", "agent": "main", "message_type": "system_prompt"},
        {"role": "assistant", "content": "```\nls\n```", "action": "ls", "is_demo": True, "agent": "main"},
        {"role": "user", "content": QUESTION, "agent": "main", "message_type": "observation"},
    ]
    steps: list[Record] = []
    for number, step in enumerate(case.steps):
        calls = [
            {"function": {"arguments": json.dumps(call.arguments), "name": call.name}, "id": f"c{number}{index}"}
            for index, call in enumerate(step.calls)
        ]
        action = "\n".join(str(call.arguments) for call in step.calls)
        said = {"role": "assistant", "content": step.said, "thought": step.said, "action": action, "agent": "main"}
        history.append({**said, "tool_calls": calls} if calls else said)
        for index, call in enumerate(step.calls):
            content = [{"type": "text", "text": call.text}]
            history.append({"role": "tool", "content": content, "tool_call_ids": [f"c{number}{index}"]})
        seen = "\n".join(call.text for call in step.calls)
        words = {"response": step.said, "thought": step.said}
        steps.append({"action": action, "observation": seen, **words, "execution_time": 0.2, "state": {}})
        if step.then:
            history.append({"role": "user", "content": step.then})
    info = {"exit_status": "submitted", "submission": "diff", "model_stats": {"api_calls": 3}}
    return {"trajectory": steps, "history": history, "info": info, "environment": "main", "reward": case.reward}


def swe_agent_fenced(case: Case) -> Record:
    """Without function calling: a command for each answer, in a block."""
    record = swe_agent(case)
    for message in record["history"]:
        calls = message.pop("tool_calls", [])
        if len(calls) == 1:
            program = next(iter(json.loads(calls[0]["function"]["arguments"]).values()))
            message["action"] = program + "\n"
            message["content"] += f"\n```python\n{program}\n```"
        elif message["role"] == "tool":
            message["role"], message["content"] = "user", message["content"][0]["text"]
            del message["tool_call_ids"]
    for step, message in zip(record["trajectory"], filter(_is_own, record["history"]), strict=True):
        step["response"], step["action"] = message["content"], message["action"]
    return record


def _is_own(message: Record) -> bool:
    return message["role"] == "assistant" and not message.get("is_demo")


def mini_swe_agent(case: Case) -> Record:
    """Version 2: function calls."""
    messages = openai(case)["messages"]
    for message in messages:
        message["extra"] = {"timestamp": 1.5}
        if message["role"] == "tool":
            message["extra"] |= {"raw_output": message["content"], "returncode": None}
    info = {"model_stats": {"api_calls": 3}, "mini_version": "2.4.6", "exit_status": "Submitted", "submission": "diff"}
    end = {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}}
    record = {"info": info, "messages": [*messages, end], "trajectory_format": "mini-swe-agent-1.1"}
    return {**record, "reward": case.reward}


def sharegpt(case: Case) -> Record:
    said: list[Record] = [{"from": "human", "value": QUESTION}]
    for step in case.steps:
        calls = [{"name": call.name, "arguments": call.arguments} for call in step.calls]
        value = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False) if calls else step.said
        said.append({"from": "function_call" if calls else "gpt", "value": value})
        said += [{"from": "observation", "value": call.text} for call in step.calls]
        if step.then:
            said.append({"from": "human", "value": step.then})
    tools = json.dumps([tool["function"] for tool in TOOLS])
    return {"conversations": said, "system": "Be brief.", "tools": tools, "reward": case.reward}


def trajectory(case: Case) -> Record:
    found = openai(case)
    return {"instance_id": "sum-1", "trajectory": found["messages"], "tools": TOOLS, "reward": case.reward}


def trajectory_text(case: Case) -> Record:
    """The chat as JSON text."""
    return {"instance_id": "sum-1", "messages": json.dumps(openai(case)["messages"]), "reward": case.reward}


def langfuse(case: Case) -> Record:
    messages = openai(case)["messages"]
    given = {"messages": messages[:-1], "tools": TOOLS}
    about = {"id": "o-1", "traceId": "t-1", "type": "GENERATION", "level": "DEFAULT", "model": "gpt-5.1"}
    return {**about, "input": given, "output": messages[-1], "reward": case.reward}


def langsmith(case: Case) -> Record:
    """A run of a model, its messages dumped."""
    kinds = {"system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
    types = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
    dumped = []
    for message in openai(case)["messages"]:
        kwargs: Record = {"content": message["content"], "type": types[message["role"]]}
        if "tool_calls" in message:
            found = [(call["id"], call["function"]) for call in message["tool_calls"]]
            kwargs["tool_calls"] = [
                {"name": each["name"], "args": json.loads(each["arguments"]), "id": call_id, "type": "tool_call"}
                for call_id, each in found
            ]
        if message["role"] == "tool":
            kwargs |= {"tool_call_id": message["tool_call_id"], "status": "success"}
        name = ["langchain", "schema", "messages", kinds[message["role"]]]
        dumped.append({"lc": 1, "type": "constructor", "id": name, "kwargs": kwargs})
    outputs = {"generations": [[{"text": "", "message": dumped[-1]}]]}
    run = {"id": "r-1", "name": "ChatOpenAI", "run_type": "llm", "inputs": {"messages": [dumped[:-1]]}}
    return {**run, "outputs": outputs, "reward": case.reward}


def langgraph(case: Case) -> Record:
    """A run of a graph, with plain messages."""
    run = langsmith(case)
    dumped = [*run["inputs"]["messages"][0], run["outputs"]["generations"][0][0]["message"]]
    messages = [each["kwargs"] for each in dumped]
    return {**run, "run_type": "chain", "inputs": {"messages": messages[:2]}, "outputs": {"messages": messages}}


def otel(case: Case) -> Record:
    messages: list[Record] = [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
    for number, step in enumerate(case.steps):
        parts: list[Record] = [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": step.said}]
        answers: list[Record] = []
        for index, call in enumerate(step.calls):
            call_id = f"c{number}{index}"
            parts.append({"type": "tool_call", "id": call_id, "name": call.name, "arguments": call.arguments})
            answers.append({"type": "tool_call_response", "id": call_id, "response": call.text})
        messages.append({"role": "assistant", "parts": parts})
        messages += [{"role": "tool", "parts": answers}] if answers else []
        messages += [{"role": "user", "parts": [{"type": "text", "content": step.then}]}] if step.then else []
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.input.messages": json.dumps(messages[:-1]),
        "gen_ai.output.messages": json.dumps([{**messages[-1], "finish_reason": "stop"}]),
    }
    return {"name": "chat", "context": {"trace_id": "0x1"}, "attributes": attributes, "reward": case.reward}


AGENTS = {
    "langfuse": langfuse,
    "langsmith": langsmith,
    "langsmith, graph": langgraph,
    "otel": otel,
    "claude-code": claude_code,
    "claude-code, whole": claude_code_whole,
    "responses": responses,
    "responses, items": agents_sdk,
    "responses, file": agents_sdk_file,
    "codex": codex,
    "session-trace": session_trace,
    "session-trace, pi": pi,
    "openhands": openhands,
    "openhands, version 0": openhands_0,
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "sharegpt": sharegpt,
    "trajectory": trajectory,
    "trajectory, text": trajectory_text,
}
"""By the format's name; after a comma, the variant. A record with `lines` is a file."""
