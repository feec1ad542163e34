"""The cases as records of each format, written to the formats' public descriptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.logs.cases import Call, Case, Step

QUESTION = "What is 1 + 1?"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "python",
            "description": "Runs Python.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    }
]
Record = dict[str, Any]


def _ids(number: int, step: Step) -> list[str]:
    return [f"call-{number}-{index}" for index in range(len(step.calls))]


def openai(case: Case) -> Record:
    messages: list[Record] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    for number, step in enumerate(case.steps):
        ids = _ids(number, step)
        message: Record = {"role": "assistant", "content": step.said}
        if step.calls:
            message["tool_calls"] = [
                {
                    "id": each,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for each, call in zip(ids, step.calls, strict=True)
            ]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": each, "content": call.text}
            for each, call in zip(ids, step.calls, strict=True)
        ]
        if step.then:
            messages.append({"role": "user", "content": step.then})
    return {"messages": messages, "tools": TOOLS, "reward": case.reward, "meta": {"case": case.name, "n": [1, None]}}


def objects(case: Case) -> Record:
    """OpenAI's, with arguments as objects, contents as parts, and reasoning beside them."""
    record = openai(case)
    for message in record["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "assistant":
            message["reasoning_content"] = "Hm. " + message["content"]
            message["content"] = None
        elif message["role"] == "tool":
            message["content"] = [{"type": "text", "text": message["content"]}]
    return record


def anthropic(case: Case) -> Record:
    """Calls and results as parts of the contents, the system's words and the tools as Anthropic's API has them."""
    record = openai(case)
    messages: list[Record] = []
    for message in record.pop("messages")[1:]:
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if messages[-1]["role"] == "assistant":
                messages.append({"role": "user", "content": []})
            messages[-1]["content"].append(result)
        elif message["role"] == "user" and messages:
            messages[-1]["content"].append({"type": "text", "text": message["content"]})
        else:
            parts: list[Record] = [{"type": "text", "text": message["content"], "cache_control": None}]
            for call in message.get("tool_calls", ()):
                function = call["function"]
                given = {"name": function["name"], "input": json.loads(function["arguments"])}
                parts.append({"type": "tool_use", "id": call["id"], **given})
            messages.append({"role": message["role"], "content": parts if messages else message["content"]})
    function = TOOLS[0]["function"]
    tool = {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
    return {**record, "messages": messages, "system": "Be brief.", "tools": [tool]}


def function_call(case: Case) -> Record:
    """OpenAI's first form of calls; it holds one a message, so several are in the later one."""
    record = openai(case)
    single, name = False, ""
    for message in record["messages"]:
        calls = message.get("tool_calls", ())
        if message["role"] == "assistant":
            single = len(calls) == 1
        if single and calls:
            del message["tool_calls"]
            message["function_call"] = calls[0]["function"]
            name = calls[0]["function"]["name"]
        elif single and message["role"] == "tool":
            message["role"], message["name"] = "function", name
            del message["tool_call_id"]
    record["functions"] = [tool["function"] for tool in record.pop("tools")]
    return record


def hermes_call(call: Call) -> str:
    return f"\n<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"


def xml_call(call: Call) -> str:
    """As Qwen3-Coder writes it."""
    values = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in call.arguments.items())
    return f"\n<tool_call>\n<function={call.name}>\n{values}</function>\n</tool_call>"


def in_text(case: Case, write: Callable[[Call], str]) -> Record:
    """Calls and results in the text."""
    messages: list[Record] = [{"role": "user", "content": QUESTION}]
    for step in case.steps:
        text = "".join(map(write, step.calls))
        messages.append({"role": "assistant", "content": step.said.replace("</tool_call>", "") + text})
        if step.calls:
            results = "\n".join(f"<tool_response>\n{call.text}\n</tool_response>" for call in step.calls)
            messages.append({"role": "user", "content": results})
        if step.then:
            messages.append({"role": "user", "content": step.then})
    return {"messages": messages, "reward": case.reward}


def hermes(case: Case) -> Record:
    return in_text(case, hermes_call)


def xml(case: Case) -> Record:
    return in_text(case, xml_call)


def verl(case: Case, write: Callable[[Call], str] = hermes_call) -> Record:
    parts = []
    for index, step in enumerate(case.steps):
        text = "".join(map(write, step.calls))
        parts.append(step.said.replace("</tool_call>", "") + text)
        if step.calls:
            results = "\n".join(f"<tool_response>\n{call.text}\n</tool_response>" for call in step.calls)
            parts.append(f"\nuser\n{results}")
            if step.then:
                parts.append(f"\nuser\n{step.then}")
            if index + 1 < len(case.steps):
                parts.append("\nassistant\n")
    return {
        "input": f"user\n{QUESTION}\nassistant\n",
        "output": "".join(parts),
        "gts": "2",
        "score": case.reward,
        "step": 7,
        "uid": "3f9a_2_0",
    }


def verl_xml(case: Case) -> Record:
    return verl(case, xml_call)


def verifiers(case: Case) -> Record:
    """Version 1: an episode of one trace."""
    nodes: list[Record] = []

    def add(message: Record, sampled: bool = False) -> None:
        ids = list(range(len(nodes), len(nodes) + 3))
        node = {"message": message, "sampled": sampled, "timestamp": 1.5, "token_ids": ids, "mask": [sampled] * 3}
        nodes.append({"parent": len(nodes) - 1, **node} if nodes else node)

    add({"role": "system", "content": "Be brief."})
    add({"role": "user", "content": QUESTION})
    for number, step in enumerate(case.steps):
        ids = _ids(number, step)
        message: Record = {"role": "assistant", "content": step.said}
        if step.calls:
            message["tool_calls"] = [
                {"id": each, "type": "function", "name": call.name, "arguments": json.dumps(call.arguments)}
                for each, call in zip(ids, step.calls, strict=True)
            ]
        add(message, sampled=True)
        for each, call in zip(ids, step.calls, strict=True):
            add({"role": "tool", "tool_call_id": each, "content": call.text})
        if step.then:
            add({"role": "user", "content": step.then})
    trace = {
        "version": 1,
        "id": "a1",
        "nodes": nodes,
        "tools": [{"type": "function", "name": "python"}],
        "rewards": {"exact": {"score": case.reward, "weight": 1.0}},
        "task": {"type": "Sum", "data": {"idx": 4}},
    }
    return {"id": "e1", "task": {"type": "Sum", "data": {"idx": 4}, "key": "sum-4"}, "ok": True, "traces": [trace]}


def verifiers0(case: Case) -> Record:
    """Version 0: prompt and completion, each call as JSON text."""
    messages = openai(case)["messages"]
    for message in messages:
        if "tool_calls" in message:
            calls = [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
            message["tool_calls"] = list(map(json.dumps, calls))
    function = TOOLS[0]["function"]
    return {
        "example_id": 12,
        "prompt": messages[:2],
        "completion": messages[2:],
        "reward": case.reward,
        "error": None,
        "timing": {"total_ms": 12.5},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "no_tools_called",
        "metrics": {"exact": case.reward},
        "tool_defs": [{**function, "strict": None}],
        "exact": case.reward,
    }


def inspect(case: Case) -> Record:
    messages: list[Record] = [{"id": "m0", "role": "user", "source": "input", "content": QUESTION}]
    for number, step in enumerate(case.steps):
        ids = _ids(number, step)
        message: Record = {
            "id": f"m{len(messages)}",
            "role": "assistant",
            "source": "generate",
            "content": [
                {"type": "reasoning", "reasoning": "Hm.", "signature": "s"},
                {"type": "text", "text": step.said},
            ],
            "model": "mock/model",
        }
        if step.calls:
            message["tool_calls"] = [
                {"id": each, "function": call.name, "arguments": call.arguments, "type": "function"}
                for each, call in zip(ids, step.calls, strict=True)
            ]
        messages.append(message)
        for each, call in zip(ids, step.calls, strict=True):
            result = {"role": "tool", "content": call.text, "tool_call_id": each, "function": call.name}
            messages.append({"id": f"m{len(messages)}", **result})
        if step.then:
            messages.append({"id": f"m{len(messages)}", "role": "user", "content": step.then})
    return {
        "id": "sum",
        "epoch": 2,
        "input": QUESTION,
        "target": "2",
        "messages": messages,
        "output": {"model": "mock/model", "choices": []},
        "scores": {"match": {"value": "C" if case.reward else "I", "answer": "2"}},
        "metadata": {},
        "events": [{"event": "info", "data": 1}],
    }


def atif(case: Case) -> Record:
    steps: list[Record] = [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": QUESTION, "timestamp": "2026-01-01T00:00:00Z"},
    ]
    for number, step in enumerate(case.steps):
        ids = _ids(number, step)
        entry: Record = {
            "step_id": len(steps) + 1,
            "source": "agent",
            "message": step.said,
            "reasoning_content": "Hm.",
            "metrics": {"completion_tokens": 5},
        }
        if step.calls:
            entry["tool_calls"] = [
                {"tool_call_id": each, "function_name": call.name, "arguments": call.arguments}
                for each, call in zip(ids, step.calls, strict=True)
            ]
            results = [
                {"source_call_id": each, "content": call.text} for each, call in zip(ids, step.calls, strict=True)
            ]
            entry["observation"] = {"results": results}
        steps.append(entry)
        if step.then:
            steps.append({"step_id": len(steps) + 1, "source": "user", "message": step.then})
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s-1",
        "agent": {"name": "made", "version": "1.0"},
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"reward": case.reward},
    }


RENDERED = {
    "openai": openai,
    "openai, objects": objects,
    "openai, anthropic": anthropic,
    "openai, function_call": function_call,
    "openai, hermes": hermes,
    "openai, xml": xml,
    "verl": verl,
    "verl, xml": verl_xml,
    "verifiers": verifiers,
    "verifiers, version 0": verifiers0,
    "inspect": inspect,
    "atif": atif,
}
"""By the format's name; after a comma, the variant."""
