"""What harnesses write around calls and results: each call is found, and judged by what its tool gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cleaner_rl.logs import Reading, detect, log_format
from cleaner_rl.logs.formats import detect_file
from cleaner_rl.logs.formats.base import LINES
from cleaner_rl.tools import CallKind, Status
from cleaner_rl.trajectory import TextSpan, Trajectory

ERROR = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nNameError: name 'x' is not defined"
PLACE = "(Open file: /repo/a.py)\n(Current directory: /repo)\nbash-$"
REJECTED = f"Your proposed edit has introduced new syntax error(s).\n\nERRORS:\n- E999 unexpected indent\n\n{PLACE}"


def read(record: dict[str, Any], name: str) -> Trajectory[TextSpan]:
    """Return the trajectory of a record that is detected as this format and comes back as it was."""
    found = detect_file(record[LINES]) if LINES in record else detect(record)
    assert found == name
    form = log_format(name)
    trajectory = form.read(record, 0, Reading())
    assert form.write(trajectory) == record
    return trajectory


def ends(trajectory: Trajectory[TextSpan]) -> list[tuple[str, Status | None]]:
    """Return the tool of each turn's call, and how the call ended."""
    return [
        (turn.calls[0].name, turn.results[0].status if turn.results else None)
        for turn in trajectory.turns
        if turn.calls
    ]


def swe_agent(*steps: tuple[str, str, str]) -> dict[str, Any]:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for language, action, observation in steps:
        content = f"I try.\n```{language}\n{action}\n```"
        history.append({"role": "assistant", "content": content, "action": f"{action}\n", "thought": "I try.\n"})
        history.append({"role": "user", "content": observation})
    return {"trajectory": [], "history": history, "info": {}}


@pytest.mark.parametrize("language", ["", "python", "bash"])
def test_commands_of_swe_agent_are_tools_of_their_own_whatever_the_fence_says(language: str) -> None:
    edit = "edit 3:3\n  return 1\nend_of_edit"
    accepted = f"[File: /repo/a.py (9 lines total)]\n1:def f():\nFile updated.\n\n{PLACE}"
    record = swe_agent((language, edit, REJECTED), (language, edit.replace("  ", "    "), accepted))
    trajectory = read(record, "swe-agent")
    assert ends(trajectory) == [("edit", Status.ERROR), ("edit", Status.OK)]
    assert [turn.calls[0].kind for turn in trajectory.turns] == [CallKind.EDIT] * 2
    assert trajectory.turns[0].calls[0].code == edit


def test_what_swe_agent_adds_about_its_place_hides_no_failure() -> None:
    stopped = "searching\nEXECUTION TIMED OUT BECAUSE NO OUTPUT WAS PRODUCED FOR MORE THAN 25 SECONDS."
    record = swe_agent(("", "python a.py", f"{ERROR}\n{PLACE}"), ("", "./slow", f"{stopped}\n{PLACE}"))
    assert ends(read(record, "swe-agent")) == [("bash", Status.ERROR), ("bash", Status.TIMEOUT)]


def test_a_countdown_behind_each_result_hides_no_failure() -> None:
    counted = "You have 4 steps left and 2 chances to propose solution left."
    history = [
        {"role": "user", "content": "What is x?"},
        {"role": "assistant", "content": "<thought> I print it. </thought>\n<execute>\nprint(x)\n</execute>"},
        {"role": "user", "content": f"Observation:\n{ERROR}\n{counted}"},
        {"role": "assistant", "content": "<execute>\nprint(1)\n</execute>\n"},
        {
            "role": "user",
            "content": f"Observation:\n1\n{counted}\nYou should take the last step to propose a solution.",
        },
        {"role": "assistant", "content": "It is 1."},
    ]
    trajectory = read({"state": {"history": history, "success": True}, "task": {"task_id": 1}}, "mint")
    assert ends(trajectory) == [("python", Status.ERROR), ("python", Status.OK)]
    assert trajectory.turns[0].code == "print(x)"


@pytest.mark.parametrize("asked", ["What is x?", [{"role": "user", "content": "What is x?"}]])
def test_rollouts_of_nemo_gym_are_read_with_their_tools(asked: object) -> None:
    items = [
        {"type": "function_call", "name": "ipython", "arguments": '{"code": "print(x)"}', "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": ERROR},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is not there."}]},
    ]
    tools = [{"type": "function", "name": "ipython", "parameters": {}}]
    request = {"input": asked, "instructions": "Be brief.", "tools": tools}
    record = {"responses_create_params": request, "response": {"id": "r", "output": items}, "reward": 1.0}
    trajectory = read(record, "nemo-gym")
    assert ends(trajectory) == [("ipython", Status.ERROR)]
    assert trajectory.reward == 1.0
    chat = log_format("nemo-gym").chat(trajectory)
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert chat.tools == [{"type": "function", "function": {"name": "ipython", "parameters": {}}}]


def test_a_file_that_is_a_list_of_messages_is_one_record() -> None:
    lines = [
        {"role": "system", "content": "You have a shell."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "I look.\n\n```mswea_bash_command\nls nowhere\n```"},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\nls: no\n</output>"},
    ]
    assert ends(read({LINES: lines}, "message-list")) == [("bash", Status.ERROR)]


def test_an_answer_without_a_question_is_no_list_of_messages() -> None:
    assert detect_file([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]) is None


def test_a_call_of_openhands_is_the_one_that_the_model_wrote() -> None:
    written = {"command": "create", "path": "/a.py", "file_text": "1\n"}
    call = {"id": "c", "type": "function", "function": {"name": "editor", "arguments": json.dumps(written)}}
    response = {"id": "r", "choices": [{"message": {"role": "assistant", "content": "", "tool_calls": [call]}}]}
    named: dict[str, Any] = {"function_name": "str_replace_editor", "tool_call_id": "c", "total_calls_in_response": 1}
    named["model_response"] = response
    shown = "--- /a.py\n+++ /a.py\n@@ -0,0 +1 @@\n+1"
    events = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "Go."}},
        {
            "id": 1,
            "source": "agent",
            "action": "edit",
            "args": {"path": "/a.py", "start": 1, "end": -1, "thought": "I write."},
            "tool_call_metadata": named,
        },
        {"id": 2, "source": "agent", "observation": "edit", "content": shown, "tool_call_metadata": named},
    ]
    trajectory = read({"history": events}, "openhands")
    assert trajectory.turns[0].calls[0].arguments == written
    assert ends(trajectory) == [("str_replace_editor", Status.OK)]


@pytest.mark.parametrize(
    ("name", "argument", "text", "status"),
    [
        ("bash", "command", "New Terminal Output:\n\nroot@box:/app# ls\na.py\nroot@box:/app#", Status.OK),
        ("python", "code", "{'output': '', 'error': 'Error: unexpected indent (<string>, line 5)'}", Status.ERROR),
        ("python", "code", "{'output': '3', 'error': ''}", Status.OK),
        ("sql", "query", "No SQL code was found in your last response.\n\nFormat it as follows.", Status.ERROR),
        (
            "bash",
            "command",
            "Function main not found! Instead, here is the decompilation of FUN_1:\n\nint f;",
            Status.OK,
        ),
        ("bash", "command", "EXECUTION RESULT of [ls]:\na.py", Status.OK),
    ],
)
def test_what_a_harness_writes_around_a_result_is_looked_through(
    name: str, argument: str, text: str, status: Status | None
) -> None:
    code = {"python": "def f():\n  x = 1\n   y", "sql": "USE a;"}.get(name, "ls")
    function = {"name": name, "arguments": json.dumps({argument: code})}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]
    assert ends(read({"messages": messages}, "openai")) == [(name, status)]
