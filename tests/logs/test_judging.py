"""Whether a logged call worked: from fields, from text, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.log_judging import figures
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.judging import By, Judged, judge_call, read_text
from cleaner_rl.logs.tracebacks import ending_traceback
from cleaner_rl.tools import CallKind, ExceptionInfo, Status, ToolCall, ToolResult
from tests.logs.cases import raised

TOOLS = Reading().tools
ALL_IS_WELL: list[dict[str, Any]] = [{"is_error": False}, {"isError": False}, {"status": "success"}, {"success": True}]


def judged(
    text: str, tool: str = "python", no_error_means_success: bool = False, arguments: Any = None, **fields: Any
) -> Judged:
    call = TOOLS.call(tool, {} if arguments is None else arguments, 0, 0)
    return judge_call(call, text, fields, no_error_means_success=no_error_means_success)


@pytest.mark.parametrize("name", ["first", "tuned"])
def test_few_labelled_results_are_judged_wrongly(name: str) -> None:
    count = figures(name)["all"]
    assert count["examples"] >= 190
    assert count["wrong_ok"] <= 0.02 * count["failed"]
    assert count["wrong_failed"] <= 0.01 * (count["examples"] - count["failed"])
    assert count["unsure"] <= 0.3 * count["examples"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"is_error": True}, Status.ERROR),
        ({"isError": False}, Status.OK),
        ({"exit_code": 0}, Status.OK),
        ({"returncode": 2}, Status.ERROR),
        ({"exit_code": 0, "is_error": True, "error": "a warning"}, Status.OK),
        ({"exit_code": 1, "is_error": False, "status": "success"}, Status.ERROR),
        ({"exit_code": 124}, Status.TIMEOUT),
        ({"exit_code": 137}, Status.CRASHED),
        ({"returncode": -9}, Status.CRASHED),
        ({"metadata": {"exit_code": 2}}, Status.ERROR),
        ({"extra": {"metadata": {"return_code": 0}}, "is_error": True}, Status.OK),
        ({"output": {"exitCode": 3}}, Status.ERROR),
        ({"timed_out": True, "exit_code": 1}, Status.TIMEOUT),
        ({"toolUseResult": {"interrupted": True}}, Status.REFUSED),
        ({"success": False}, Status.ERROR),
        ({"status": "timeout"}, Status.TIMEOUT),
        ({"status": "rejected"}, Status.REFUSED),
        ({"error": {"type": "approval", "message": "no"}}, Status.REFUSED),
        ({"status": "success"}, Status.OK),
        ({"error": {"type": "timeout", "message": "late"}}, Status.TIMEOUT),
        ({"error": {"type": "parsing", "message": "bad"}}, Status.MALFORMED),
        ({"error": {"type": "sandbox_unavailable", "message": "gone"}}, Status.FAULT),
        ({"error": "it broke"}, Status.ERROR),
    ],
)
def test_a_field_decides_whatever_the_text_says(fields: dict[str, Any], status: Status) -> None:
    raising = () if fields in ALL_IS_WELL else (raised("ValueError: x"),)
    for text in ("all well", *raising, ""):
        found = judged(text, **fields)
        assert found.by is By.FIELD
        assert found.result is not None
        assert found.result.status is status


@pytest.mark.parametrize("fields", ALL_IS_WELL)
def test_a_program_s_traceback_is_unsure_where_a_flag_says_that_all_is_well(fields: dict[str, Any]) -> None:
    for tool in ("python", "bash"):
        assert judged(raised("ValueError: x"), tool, **fields) == Judged(None, By.NOTHING)
        assert judged(raised("ValueError: x"), tool, exit_code=0, **fields).by is By.FIELD
    assert judged(raised("ValueError: x"), "read_file", **fields).by is By.FIELD


def test_no_error_is_a_success_where_errors_have_a_field_but_not_of_programs() -> None:
    assert judged("Error handling, chapter 1", "read_file", no_error_means_success=True).result is not None
    assert judged("Error handling, chapter 1", "read_file").result is None
    assert (
        judged(raised("ValueError: x"), no_error_means_success=True, error=None).result
        == judged(raised("ValueError: x")).result
    )
    assert judged("bash: x: command not found", "bash", no_error_means_success=True).result is None
    ran = judged("bash: x: command not found", "bash", no_error_means_success=True, arguments={"command": "x"})
    assert ran.result is not None
    assert ran.result.status is Status.ERROR


def test_that_a_call_is_completed_says_nothing_about_how() -> None:
    assert judged("42", status="completed").by is By.TEXT
    found = judged(raised("ValueError: x"), status="completed").result
    assert found is not None
    assert found.failed


def test_what_was_printed_and_the_exception_are_told_apart() -> None:
    text = raised("ValueError: bad value", before="1\n2\n")
    result = judged(text).result
    assert result is not None
    assert (result.status, result.output) == (Status.ERROR, "1\n2\n")
    assert result.exception == ExceptionInfo("ValueError", "bad value")


NAME_ERROR = "NameError: name 'y' is not defined"


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        ("print(y)", NAME_ERROR, Status.ERROR),
        ("print(1)\nprint(y)", f"1\n{NAME_ERROR}", Status.ERROR),
        ("print(y)", f"Error: {NAME_ERROR}", Status.ERROR),
        ("print(y)", "Error executing code: name 'y' is not defined", Status.ERROR),
        ("print(1 / 0)", "ZeroDivisionError: division by zero", Status.ERROR),
        ("print((1", "SyntaxError: '(' was never closed (<string>, line 1)", Status.ERROR),
        ("!python3 broken.py", "SyntaxError: '(' was never closed (<string>, line 1)", None),
        ("print((1", "ZeroDivisionError: division by zero", None),
        ("print(report)", "ZeroDivisionError: division by zero", None),
        ("print(report)", NAME_ERROR, None),
        ("print(open('y').read())", NAME_ERROR, None),
        ("try:\n    y\nexcept NameError as e:\n    print(f'NameError: {e}')", NAME_ERROR, None),
        ("print('NameError: no')", "NameError: no", Status.OK),
        ("print(y)", "3", Status.OK),
    ],
)
def test_an_error_s_line_alone_is_a_failure_if_the_program_can_t_have_printed_it(
    code: str, text: str, status: Status | None
) -> None:
    result = judged(text, arguments={"code": code}).result
    assert (None if result is None else result.status) is status


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        (f"1\n{NAME_ERROR}", ExceptionInfo("NameError", "name 'y' is not defined")),
        ("1\nExecution failed: name 'y' is not defined\n", ExceptionInfo("NameError", "name 'y' is not defined")),
        ("1\nhttpx.ConnectError: refused", ExceptionInfo("httpx.ConnectError", "refused")),
    ],
)
def test_an_error_s_line_alone_is_no_output_of_a_program_that_failed(text: str, exception: ExceptionInfo) -> None:
    result = judged(text, is_error=True).result
    assert result == ToolResult(Status.ERROR, "1", exception=exception)
    assert judged(text, "read_file", is_error=True).result == ToolResult(Status.ERROR, text)


def test_a_malformed_call_is_one_unless_somebody_could_read_it() -> None:
    broken = '{"code": "print(1)'
    found = judged("Invalid JSON in tool call", arguments=broken).result
    assert found is not None
    assert found.status is Status.MALFORMED
    assert judged("1", arguments=broken).result is None


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        (raised("Oops: custom"), ExceptionInfo("Oops", "custom")),
        (raised("__main__.Oops: custom"), ExceptionInfo("__main__.Oops", "custom")),
        (raised("AssertionError"), ExceptionInfo("AssertionError", "")),
        (raised("ValueError: two:\n  lines"), ExceptionInfo("ValueError", "two:\n  lines")),
        (
            "----------------------------------------\nNameError    Traceback (most recent call last)\n"
            "Cell In[1], line 1\n----> 1 print(y)\n\nNameError: name 'y' is not defined",
            ExceptionInfo("NameError", "name 'y' is not defined"),
        ),
        ("  Cell In[2], line 1\n    1 +\n       ^\nSyntaxError: invalid", ExceptionInfo("SyntaxError", "invalid")),
        (
            '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in <module>\n'
            "  | ExceptionGroup: two (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
            "    | ValueError: x\n    +------------------------------------",
            ExceptionInfo("ExceptionGroup", "two (1 sub-exception)"),
        ),
        (raised("ValueError: x") + "\nand on it goes", None),
        (raised("ValueError: x") + "\n\n1 failed", None),
        ("Traceback (most recent call last):", None),
        ("Traceback (most recent call last):\n  File", None),
        ("no traceback", None),
        ("", None),
    ],
)
def test_a_traceback_counts_if_the_text_ends_with_it(text: str, exception: ExceptionInfo | None) -> None:
    found = ending_traceback(text)
    assert (None if found is None else found[1]) == exception


COLOURED = (
    "\x1b[0;31m---------------------------------------------------------------------------\x1b[0m\n"
    "\x1b[0;31mZeroDivisionError\x1b[0m                         Traceback (most recent call last)\n"
    "Cell \x1b[0;32mIn[1], line 1\x1b[0m\n\x1b[0;32m----> 1\x1b[0m \x1b[38;5;241;43m1\x1b[39;49m/0\n\n"
    "\x1b[0;31mZeroDivisionError\x1b[0m: division by zero"
)


def test_colours_hide_no_traceback_and_stay_in_what_was_printed() -> None:
    printed = "\x1b[32mbegun\x1b[0m\n"
    result = judged(printed + COLOURED).result
    assert result is not None
    assert (result.status, result.output) == (Status.ERROR, printed)
    assert result.exception == ExceptionInfo("ZeroDivisionError", "division by zero")
    assert judged(COLOURED, is_error=False) == Judged(None, By.NOTHING)
    assert judged("\x1b[31mValueError: x\x1b[0m").result is None
    well = judged(printed).result
    assert well is not None
    assert (well.status, well.output) == (Status.OK, printed)


WRAPPED: dict[str, Callable[[str, int], str]] = {
    "Codex, JSON": lambda text, code: json.dumps({"output": text, "metadata": {"exit_code": code}}),
    "Codex": lambda text, code: f"Exit code: {code}\nWall time: 0.1 seconds\nOutput:\n{text}",
    "Codex, chunks": lambda text, code: (
        f"Chunk ID: 4f\nWall time: 0.1 seconds\nProcess exited with code {code}\nOriginal token count: 3\n"
        f"Output:\n{text}"
    ),
    "Claude Code": lambda text, code: f"Exit code {code}\n{text}",
    "OpenHands": lambda text, code: (
        f"{text}\n[The command completed with exit code {code}.]\n[Current working directory: /w]\n"
        f"[Python interpreter: /usr/bin/python]\n[Command finished with exit code {code}]"
    ),
    "mini-swe-agent": lambda text, code: f"<returncode>{code}</returncode>\n<output>\n{text}\n</output>",
    "brackets": lambda text, code: f"{text}\n[exit code: {code}]",
    "subprocess": lambda text, code: json.dumps({"stdout": text, "stderr": "", "returncode": code}),
    "a template": lambda text, code: f"<tool_response>\n{text}\n[exit code {code}]\n</tool_response>",
}


@pytest.mark.parametrize("tool", ["python", "bash"])
@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_an_exit_code_around_the_text_decides_and_is_no_output(wrapped: Callable[[str, int], str], tool: str) -> None:
    for text in ("all is well", "error: it failed", raised("ValueError: x").rstrip()):
        worked = judged(wrapped(text, 0), tool)
        assert worked == Judged(ToolResult(Status.OK, text), By.TEXT)
        failed = judged(wrapped(text, 2), tool).result
        assert failed is not None
        assert failed.status is Status.ERROR
        assert (failed.output, failed.exception is None) == (("", False) if text.startswith("Trace") else (text, True))


def test_an_exit_code_that_a_command_prints_itself_is_not_the_harness_s() -> None:
    arguments = {"command": 'make; echo "exit code: $?"'}
    printed = judged("exit code: 2", "bash", arguments=arguments).result
    assert printed == ToolResult(Status.OK, "exit code: 2"), "the last program is echo"
    made = judged("exit code: 2", "bash", arguments={"command": "make"}).result
    assert made == ToolResult(Status.ERROR, "")
    assert judged("exit code: 2", "read_file").result == printed, "a file may begin so"


DENIALS = [
    ("Bash", "Permission to use Bash with command rm -rf build has been denied."),
    ("Edit", "The user doesn't want to proceed with this tool use. The tool use was rejected"),
    ("shell", "exec command rejected by user"),
    ("apply_patch", "patch rejected by user"),
    ("run_shell_command", "[Operation Cancelled] Reason: User denied execution."),
    ("execute_command", "The user denied this operation."),
    ("deploy", "Action blocked by policy: frozen"),
    ("sql", "ERROR:  permission denied for table users"),
    ("mcp__x__write", "Error: Access denied - path outside allowed directories"),
]


@pytest.mark.parametrize(("tool", "text"), DENIALS)
@pytest.mark.parametrize("fields", [{}, {"is_error": True}])
def test_a_denial_is_told_from_an_error(tool: str, text: str, fields: dict[str, Any]) -> None:
    found = judged(text, tool, arguments={"command": "rm -rf build"} if tool == "Bash" else {}, **fields).result
    assert found is not None
    assert found.status is Status.REFUSED


def test_what_a_program_prints_is_no_denial() -> None:
    text = "The user denied it"
    found = judged(text, arguments={"code": f"print({text!r})"}).result
    assert found == ToolResult(Status.OK, text)


@pytest.mark.parametrize(
    ("command", "text", "status"),
    [
        ("cd /w && pyhton run.py", "bash: line 1: pyhton: command not found", Status.ERROR),
        ("cat a.log", raised("KeyError: 'x'"), Status.OK),
        ("grep -n error a.log", "3: error: it failed", Status.OK),
        ("python a.py", raised("KeyError: 'x'"), Status.ERROR),
        ("cd /w && python a.py", "FileNotFoundError: no file", None),
        ("python a.py | tail -1", "KeyError: 'x'", None),
        ("cat a b", "one\ncat: b: No such file or directory", Status.ERROR),
        ("cat b | wc -l", "cat: b: No such file or directory\n0", None),
        ("pytest -q", "1 failed, 3 passed in 0.31s", Status.ERROR),
        ("pytest -q || true", "1 failed, 3 passed in 0.31s", None),
        ("pytest -q", "97 passed, 0 failed, 0 errors in 0.12s", Status.OK),
        ("git push", "To x\n ! [rejected] main -> main\nerror: failed to push some refs", Status.ERROR),
        ("diff a b", "3c3", None),
        ("mkdir -p out && cp a out", "", Status.OK),
        ("grep x a", "", None),
        ("grep x a", "(no output)", None),
        ("make", "Your command ran successfully and did not produce any output.", Status.OK),
        ("make", "gcc -o main main.c", Status.OK),
        ("curl -s api", '{"error": "not found"}', None),
        ("./a --help", "usage: a [-h]", None),
        ("a --help", "usage: a [-h]", Status.OK),
        ("a -x", "usage: a [-h]", None),
        ("ssh a uptime", "me@a: Permission denied (publickey).", Status.ERROR),
        ("foo.exe", "'foo.exe' is not recognized as an internal or external command,", Status.ERROR),
        ("Get-Item a", "Get-Item : Cannot find path 'a' because it does not exist.\nAt line:1 char:1", Status.ERROR),
        ("git push", "remote: no error\nTo a\n   1234567..89abcde  main -> main", Status.OK),
        ("npm install", "npm warn deprecated a@1: not supported\nadded 3 packages in 1s", Status.OK),
    ],
)
def test_the_command_says_whose_words_a_shell_s_text_is(command: str, text: str, status: Status | None) -> None:
    found = judged(text, "bash", arguments={"command": command}).result
    assert (None if found is None else found.status) is status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("{}", Status.OK),
        ('{"id": 7, "conclusion": "failure"}', Status.OK),
        ('{"status": "error", "message": "no such city"}', Status.ERROR),
        ('{"id": 7, "status": "failed", "error": "disk full"}', None),
        ('{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "bad"}}', Status.ERROR),
        ('{"message": "Not Found", "status": "404"}', Status.ERROR),
        ('{"message": "slow down", "code": 429}', Status.REFUSED),
        ('{"content": [{"type": "text", "text": "no"}], "isError": true}', Status.ERROR),
        ("MCP error -32602: Invalid arguments", Status.ERROR),
        ("MCP error -32001: Request timed out", Status.TIMEOUT),
        ("MCP error -32000: Connection closed", None),
        ("<tool_use_error>File does not exist.</tool_use_error>", Status.ERROR),
        ("Error: order not found", Status.ERROR),
        ("Error handling, chapter 1", None),
    ],
)
def test_objects_and_sentences_of_other_tools_say_how_a_call_ended(text: str, status: Status | None) -> None:
    found = judged(text, "mcp__shop__order").result
    assert (None if found is None else found.status) is status


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"success": False, "error": "NameError: x"}),
        json.dumps({"status": "timeout"}),
        json.dumps({"result": raised("NameError: x")}),
        f"<stderr>{raised('NameError: x')}\n</stderr>",
    ],
)
def test_a_failure_that_a_tool_wraps_is_unsure_of_python(text: str) -> None:
    assert judged(text) == Judged(None, By.NOTHING)


@pytest.mark.parametrize("value", [{"error": None, "value": 3}, {"stdout": "3", "exit_code": 0}, {"success": True}])
def test_an_object_that_says_all_is_well_is_ok(value: dict[str, Any]) -> None:
    for tool in ("python", "calculator"):
        result = judged(json.dumps(value), tool).result
        assert result is not None
        assert result.status is Status.OK


USAGE = "usage: a.py [-h] --n N\na.py: error: unrecognized arguments: -x"


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        ("parser.parse_args(['-x'])", USAGE, Status.ERROR),
        ("subprocess.run(['./a.py', '-x'])", USAGE, None),
        ("try:\n    main()\nexcept SystemExit:\n    pass", USAGE, None),
        ("print(parser.format_usage())", "usage: a.py [-h] --n N", None),
        ("load()", "1%\nThe kernel appears to have died. It will restart automatically.", Status.CRASHED),
        ("load()", "1%\nSegmentation fault (core dumped)", Status.CRASHED),
        ("os.system('./a')", "1%\nSegmentation fault (core dumped)", None),
        ("print(state)", "1\nKilled", None),
        ("print('Killed')", "Killed", Status.OK),
        ("load()", "1%\nExecution timed out after 30 seconds", None),
        ("print(1 / 0)", "ZeroDivisionError('division by zero')", Status.ERROR),
        ("print({}['k'])", "KeyError('k')", Status.ERROR),
        ("print(load())", "KeyError('k')", None),
        ("print(repr(found))", "KeyError('k')", Status.OK),
        ("f()", '{"output_type": "error", "ename": "KeyError", "evalue": "1", "traceback": []}', Status.ERROR),
    ],
)
def test_python_may_end_without_a_traceback(code: str, text: str, status: Status | None) -> None:
    result = judged(text, arguments={"code": code}).result
    assert (None if result is None else result.status) is status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("001003 (42000): SQL compilation error:\nsyntax error line 1", Status.ERROR),
        ("('42S22', \"[42S22] [Microsoft][ODBC Driver 18 for SQL Server]Invalid column name 'a'.\")", Status.ERROR),
        ("[TABLE_OR_VIEW_NOT_FOUND] The table or view `a` cannot be found.", Status.ERROR),
        ("line 1:8: Column 'a' cannot be resolved", Status.ERROR),
        ('NOTICE:  table "b" does not exist, skipping\nERROR:  syntax error at or near "x"', Status.ERROR),
        ('NOTICE:  table "b" does not exist, skipping\nDROP TABLE', Status.OK),
        ("UPDATE 3\nERROR:  division by zero", Status.ERROR),
        ("Statement blocked by the gateway: writes, drops and grants need a ticket.", Status.REFUSED),
        ("403 Access Denied: Table a: User does not have permission", Status.REFUSED),
        ("500 The engine failed, and nobody knows why.", None),
        ("errors\n0", Status.OK),
        ("[12345] [67890]", Status.OK),
        ("(1, 'SQL compilation error: a, b')", Status.OK),
        ('{"rows": null, "error": "no such table: a"}', Status.ERROR),
        ('{"rows": [], "error": null}', Status.OK),
    ],
)
def test_databases_say_what_is_wrong_in_their_own_words(text: str, status: Status | None) -> None:
    found = judged(text, "sql", arguments={"query": "SELECT count(*) AS errors FROM a"}).result
    assert (None if found is None else found.status) is status


def page(title: str, text: str = "") -> str:
    return f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body>{text}</body></html>"


@pytest.mark.parametrize(
    ("tool", "text", "status"),
    [
        ("fetch", page("404 - Page not found"), Status.ERROR),
        ("http_get", page("403 Forbidden"), Status.REFUSED),
        ("fetch_url", page("503 Service Temporarily Unavailable"), None),
        ("fetch", page("404 Not Found", "what it means " * 300), None),
        ("fetch", page("500 recipes"), Status.OK),
        ("read_file", page("404 Not Found"), None),
        ("patch_file", "patch: **** malformed patch at line 4: x", Status.ERROR),
        ("apply_patch", "patching file a\nHunk #1 succeeded at 3 (offset 1 line).\nHunk #2 FAILED at 9.", Status.ERROR),
        ("apply_patch", "patching file a\nHunk #1 succeeded at 3 (offset 1 line).", Status.OK),
        ("edit_file", "File a.txt is missing, so no lines were changed.", Status.ERROR),
        ("delete_file", "The file a.txt couldn't be opened and nothing was removed", Status.ERROR),
        ("delete_file", "The file notes/no-op/not-found.md was deleted.", Status.OK),
        ("Grep", "No files found", Status.OK),
        ("Grep", "a.py:3: raise Error\nb.py:4: # failed", Status.OK),
        ("build", "a.py:3: fatal error\nb.py:4: failed", None),
        ("read_file", "File not found: a.md", Status.ERROR),
    ],
)
def test_pages_patches_and_searches_say_how_a_call_ended(tool: str, text: str, status: Status | None) -> None:
    found = judged(text, tool, arguments={"path": "a"}).result
    assert (None if found is None else found.status) is status


@pytest.mark.parametrize(
    ("tool", "value", "status"),
    [
        ("calculator", {"content": {"success": False, "message": "no"}}, Status.ERROR),
        ("calculator", {"jsonrpc": "2.0", "id": 1, "result": {"success": False}}, Status.ERROR),
        ("get_build", {"result": {"success": False, "message": "no"}}, None),
        ("calculator", {"name": "calculator", "content": {"error": "no"}}, Status.ERROR),
        ("calculator", {"name": "calculator", "content": {"value": 3}}, Status.OK),
        ("calculator", {"name": "calculator", "content": "Error: no such function"}, Status.ERROR),
        ("get_file", {"name": "a.md", "content": "Error: no such function"}, None),
        ("get_job", {"result": {"job": 7, "status": "failed"}}, None),
        ("bash", {"name": "bash", "content": {"output": "error: x", "exit_code": 0}}, Status.OK),
        ("bash", {"name": "bash", "content": {"output": "", "exit_code": 3}}, Status.ERROR),
        ("python", {"result": {"success": False}}, None),
        ("http_request", {"status": 204, "headers": {}, "body": "no errors, nothing failed"}, Status.OK),
        ("http_request", {"status": 404, "headers": {"a": "b"}, "body": "{}"}, None),
    ],
)
@pytest.mark.parametrize("around", ["{}", "<tool_response>\n{}\n</tool_response>"])
def test_a_flag_may_be_one_object_deeper(tool: str, value: dict[str, Any], status: Status | None, around: str) -> None:
    found = judged(
        around.replace("{}", json.dumps(value)), tool, arguments={"command": "make"} if tool == "bash" else {}
    ).result
    assert (None if found is None else found.status) is status


def test_a_command_that_its_harness_stopped_waiting_for_timed_out() -> None:
    text = (
        "begun\n[The command has no new output after 30 seconds. You may wait longer.]\n"
        "[Current working directory: /a]\n[Command finished with exit code -1]"
    )
    found = judged(text, "execute_bash", arguments={"command": "make"}).result
    assert found is not None
    assert found.status is Status.TIMEOUT


def test_chained_tracebacks_are_one() -> None:
    first, second = raised("KeyError: 'x'", before="out\n"), raised("RuntimeError: y")
    text = f"{first}\n\nThe above exception was the direct cause of the following exception:\n\n{second}\n"
    assert ending_traceback(text) == (4, ExceptionInfo("RuntimeError", "y"))
    apart = f"{first}\nhandled\n{second}"
    assert ending_traceback(apart) == (len(first) + len("\nhandled\n"), ExceptionInfo("RuntimeError", "y"))


def called(kind: CallKind) -> ToolCall:
    return ToolCall(kind, {}, "", 0, 0, kind=kind)


LONG = {
    "a word": "Error" * 40_000 + "(",
    "a last word": "x\n" + "Error" * 40_000,
    "places": "a.b:1:c.d:2:\n" * 5_000 + "x",
    "a title": "<html><title>404" + "-" * 200_000,
}


@pytest.mark.parametrize("kind", CallKind)
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_text_is_judged_in_a_time_that_grows_with_its_length(text: str, kind: CallKind) -> None:
    """A pattern whose time grows with the square of the length would take minutes here, and be stopped by CI."""
    assert read_text(text, called(kind)) in (None, *Status)


@given(st.text(), st.sampled_from(CallKind))
def test_any_text_gets_an_answer_or_none(text: str, kind: CallKind) -> None:
    assert read_text(text, called(kind)) in (None, *Status)


@given(st.text(st.characters(categories=["Nd", "Zs", "Pd"], include_characters="\n.,()[]"), min_size=1))
def test_numbers_are_no_failure(text: str) -> None:
    for kind in CallKind:
        assert read_text(text, called(kind)) in (None, Status.OK)
