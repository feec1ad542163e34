"""A repair is warranted only if the correction is the same call in the right form, and nothing is lost."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from cleaner_rl.logs.warrant import Leftovers, RepairContext, Surroundings, Unwarranted, unwarranted, words
from cleaner_rl.logs.warrant.edits import edit_refusal
from cleaner_rl.logs.warrant.offers import renamed
from cleaner_rl.logs.warrant.other import other_refusal
from cleaner_rl.logs.warrant.python import nothing_reads, python_refusal
from cleaner_rl.logs.warrant.shell import shell_refusal
from cleaner_rl.logs.warrant.sql import sql_refusal
from cleaner_rl.logs.warrant.texts import misspelt, same_path
from cleaner_rl.logs.warrant.words import tells_of_change
from cleaner_rl.tools import CallKind, ExceptionInfo, Status, ToolCall, ToolResult
from cleaner_rl.trajectory import TextSpan, Trajectory, Turn

OTHER, CHANGED, FINDING = Unwarranted.OTHER_PURPOSE, Unwarranted.CHANGED, Unwarranted.FINDING
REPLAYED = RepairContext(Leftovers.REPLAYED)
DENIED, BYPASS, UNREADABLE = Unwarranted.DENIED, Unwarranted.BYPASS, Unwarranted.UNREADABLE


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("pyhton", "python", True),
        ("aeg", "age", True),
        ("user", "users", True),
        ("celcius", "celsius", True),
        ("part1", "part2", False),
        ("import", "export", False),
        ("include", "exclude", False),
        ("cat", "car", False),
        ("a", "b", False),
    ],
)
def test_a_slip_keeps_the_first_letter_and_the_digits(first: str, second: str, same: bool) -> None:
    assert misspelt(first, second) is same
    assert misspelt(second, first) is same


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("app/geo.py", "/app/geo.py", True),
        ("tests/test_a.py", "tests/unit/test_a.py", True),
        ("k8s/web.yml", "k8s/web.yaml", True),
        ("note/today.md", "notes/today.md", True),
        ("api/package.json", "web/package.json", False),
        ("src/a.c", "src/a.h", False),
        ("flags/on", "flags/off", False),
        ("data/part1.csv", "data/part2.csv", False),
    ],
)
def test_two_paths_are_one_file_if_they_differ_by_a_slip_or_by_folders_before_it(
    first: str, second: str, same: bool
) -> None:
    assert same_path(first, second) is same


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        ("git lgo -3", "git log -3", "git: 'lgo' is not a git command. See 'git --help'.", None),
        ("cd w && npm ci && npm run biuld", "cd w && npm ci && npm run build", 'Missing script: "biuld"', None),
        ("cd w && npm ci && npm run biuld", "cd w && npm run build", 'Missing script: "biuld"', OTHER),
        ("cd /srv/shopp && make", "cd /srv/shop && make", "bash: cd: /srv/shopp: No such file or directory", None),
        ("cd /ap; touch x", "cd /app; touch x", "bash: cd: /ap: No such file or directory", CHANGED),
        ("docker compose up -d", "docker compose -f c.yml up -d", "no configuration file provided: not found", OTHER),
        ("docker rm w", "docker rm -f w", "cannot remove container: container is running", BYPASS),
        ("git push", "git push --force", "! [rejected] main -> main (non-fast-forward)", BYPASS),
        ("pytest -q --maxfial=1", "pytest -q --maxfail=1", "error: unrecognized arguments: --maxfial=1", None),
        ("pytest -q", "pytest -q tests/b.py", "1 failed, 3 passed", OTHER),
        ("pytest -q", "pytest -q || true", "1 failed, 3 passed", BYPASS),
        ("ls part1.csv", "ls part2.csv", "ls: cannot access 'part1.csv': No such file or directory", OTHER),
        ("ls user.csv", "ls users.csv", "ls: cannot access 'user.csv': No such file or directory", FINDING),
        ("A=1 ./m migrat", "A=2 ./m migrate", "Unknown command: 'migrat'", OTHER),
        ("tar czf a.txt a.tgz", "tar czf a.tgz a.txt", "tar: a.tgz: Cannot stat: No such file or directory", OTHER),
        ("cp a.txt bb.txt out/", "cp b.txt out/", "cp: cannot stat 'bb.txt': No such file or directory", OTHER),
        ("echo x >> l && tial l", "echo x >> l && tail l", "bash: tial: command not found", CHANGED),
        ("pip list > p && wc p.tx", "pip list > p && wc p.txt", "wc: p.tx: No such file or directory", None),
        ("echo $(date", "echo $(date)", "unexpected EOF while looking for matching `)'", None),
        ("mkdir a\necho $(date", "mkdir a\necho $(date)", "unexpected EOF while looking for matching `)'", UNREADABLE),
        ("python -c 'print(2'", "python -c 'print(2)'", "SyntaxError: '(' was never closed", None),
        ("psql -c 'select cout(*) from t'", "psql -c 'select count(*) from t'", "no such function: cout", None),
        ("psql -c 'select a from t'", "psql -c 'select a from u'", 'relation "t" does not exist', OTHER),
    ],
)
def test_shell_commands(failed: str, correction: str, told: str, reason: Unwarranted | None) -> None:
    assert shell_refusal(failed, correction, told) is reason


WRITTEN = "cat > v.py <<'EOF'\nimport sys\nprint(sys.{})\nEOF\npython v.py"
NO_ATTRIBUTE = "File \"/w/v.py\", line 2, in <module>\nAttributeError: module 'sys' has no attribute 'verison'"


def test_a_program_that_a_command_writes_and_runs_is_compared_as_a_program() -> None:
    assert shell_refusal(WRITTEN.format("verison"), WRITTEN.format("version"), NO_ATTRIBUTE) is None
    patched = "sed -i s/verison/version/ v.py && python v.py"
    assert shell_refusal(WRITTEN.format("verison"), patched, NO_ATTRIBUTE) is OTHER


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        ("SELECT avg(aeg) FROM c", "SELECT avg(age) FROM c", "no such column: aeg", None),
        ("SELECT a FROM t WHERE x = 'FR'", "SELECT a FROM t WHERE x = 'DE'", "no such column: x", OTHER),
        ("SELECT a FROM t WHERE n < 3", "SELECT a FROM t WHERE n > 3", "syntax error", OTHER),
        ("SELECT a FROM t ORDER BY prise DESC", "SELECT a FROM t ORDER BY price ASC", "no such column: prise", OTHER),
        ("SELECT max(n FROM t", "SELECT min(n) FROM t", "syntax error", OTHER),
        ("SELECT TOP 3 a FROM t", "SELECT a FROM t LIMIT 3", 'syntax error at or near "3"', None),
        ('SELECT a FROM t WHERE n = "ann"', "SELECT a FROM t WHERE n = 'ann'", 'column "ann" does not exist', None),
        ("SELECT a FROM t", "SELECT a FROM s.t", 'relation "t" does not exist', None),
        ("SELECT cust FROM t", "SELECT gross FROM t", "no such column: cust", OTHER),
        ("SELECT n FROM read('s/*.csv)", "SELECT n FROM read('s/*.csv')", "syntax error at or near", None),
        ("SELECT n FROM read('s/*.csv)", "SELECT n FROM read('t/*.csv')", "syntax error at or near", OTHER),
        ("DELETE FROM t WHERE a = 1 LIMIT 1", "DELETE FROM t WHERE a = 1", 'near "LIMIT": syntax error', OTHER),
        ("UPDATE t SET b = 1; UPDATE t SET bb = 2", "UPDATE t SET b = 2", "no such column: bb", CHANGED),
        ("INSERT INTO t VALUES (1)", "INSERT OR REPLACE INTO t VALUES (1)", "UNIQUE constraint failed", BYPASS),
        ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "UNIQUE constraint failed", FINDING),
    ],
)
def test_statements(failed: str, correction: str, told: str, reason: Unwarranted | None) -> None:
    assert sql_refusal(failed, correction, told) is reason


NOT_THERE = "No replacement was performed, old_str did not appear verbatim in the file."


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        (("/a.py", "n-1", "n"), ("/a.py", "n - 1", "n"), NOT_THERE, None),
        (("/a.py", "P=5", "P=20"), ("/a.py", "P = 5", "P = 10"), NOT_THERE, OTHER),
        (("/a.py", "i<n", "i <= n"), ("/a.py", "i < n", "i > n"), NOT_THERE, OTHER),
        (("/a.py", "print('x')", ""), ("/a.py", "log(y, z)", ""), NOT_THERE, OTHER),
        (("/a.py", "x=1\nlog(yy)", "x=1"), ("/a.py", "x=1\nlog(y)", "x=1"), NOT_THERE, None),
        (("/a.py", "x=1\nlog(yy)\nput(z)", "x=1"), ("/a.py", "x=1\nlog(y)", "x=1"), NOT_THERE, OTHER),
        (("/a.py", "x=1\nlog(yy)", "x=1"), ("/a.py", "x=1\nlog(y)\nput(z)", "x=1"), NOT_THERE, OTHER),
        (("/a.py", "t = 1", "t = 2"), ("/a.py", "class C:\n t = 1", "class C:\n t = 2"), "2 occurrences", None),
        (("/x/i.py", "a", "b"), ("/y/i.py", "a", "b"), NOT_THERE, OTHER),
        (("x/i.py", "a", "b"), ("/x/i.py", "a", "b"), "The path x/i.py is not an absolute path", None),
        (("/a.py", "a", "b"), ("/a.py", "a", "b"), "File has been modified since read", FINDING),
    ],
)
def test_file_edits(
    failed: tuple[str, ...], correction: tuple[str, ...], told: str, reason: Unwarranted | None
) -> None:
    names = ("path", "old_str", "new_str")
    first, second = dict(zip(names, failed, strict=True)), dict(zip(names, correction, strict=True))
    assert edit_refusal(first, second, told) is reason


def test_a_patch_of_several_files_may_have_been_applied_in_part() -> None:
    two = "*** Begin Patch\n*** Update File: a\n-x\n+y\n*** Update File: b\n-x\n+y\n*** End Patch"
    assert edit_refusal({"input": two}, {"input": two.replace("-x", "- x")}, "Failed to find expected lines") is CHANGED


def test_a_patch_of_several_files_that_left_all_of_them_alone_may_be_repaired() -> None:
    two = "*** Begin Patch\n*** Update File: d/a.py\n-x\n+y\n*** Update File: d/conf.py\n-x\n+y\n*** End Patch"
    wrong = {"input": two.replace("conf", "cnof")}
    told = "verification failed: d/cnof.py: No such file or directory."
    assert edit_refusal(wrong, {"input": two}, told) is CHANGED
    assert edit_refusal(wrong, {"input": two}, f"{told} No files were modified.") is None
    other = {"input": two.replace("d/a.py", "d/b.py")}
    assert edit_refusal(wrong, other, f"{told} No files were modified.") is OTHER


def test_a_patch_takes_out_all_that_the_failed_one_was_to() -> None:
    start, end = "*** Begin Patch\n*** Update File: f.ts\n@@\n", "*** End Patch"
    told = "apply_patch verification failed: Failed to find expected lines in f.ts:\n  oldIcon: false,"
    failed = {"input": f"{start}-  oldIcon: false,\n@@\n-  topNav: true,\n{end}"}
    both = {"input": f"{start}-  oldIcons: false,\n@@\n-  topNav: true,\n{end}"}
    one = {"input": f"{start}-  oldIcons: false,\n{end}"}
    assert edit_refusal(failed, both, told) is None
    assert edit_refusal(failed, one, told) is OTHER


def test_an_edit_that_may_now_change_more_is_a_bypass() -> None:
    edit = {"file_path": "/a", "old_string": "x", "new_string": "y"}
    assert edit_refusal(edit, {**edit, "replace_all": True}, "Found 3 matches") is BYPASS


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        ({"number": 4}, {"issue_number": 4}, "issue_number is required", None),
        ({"number": 4}, {"issue_number": 5}, 'expected "number", issue_number is required', OTHER),
        ({"start": "2026-05-01 10:00"}, {"start": "2026-05-01T10:00:00Z"}, "expected ISO 8601", None),
        ({"start": "2026-05-01 10:00"}, {"start": "2026-05-02T10:00:00Z"}, "expected ISO 8601", OTHER),
        ({"to": "a@b.c, d@e.f"}, {"to": ["a@b.c", "d@e.f"]}, "to must be a list", None),
        ({"to": "a@b.c, d@e.f"}, {"to": ["a@b.c"]}, "to must be a list", OTHER),
        ({"n": 5000}, {"n": 1000}, "n must be at most 1000", FINDING),
        ({"name": "x"}, {"name": "x", "confirm": True}, "invalid request: must be confirmed", BYPASS),
        ({"path": "x"}, {"path": "x", "sha": "9a"}, "sha is required", OTHER),
        ({"repo": "a/b"}, {"owner": "a", "repo": "b"}, "owner is required", None),
        ({"text": "it failed"}, {"text": "it worked"}, "invalid request", OTHER),
        ({"expr": "sum(rate(a[5m])"}, {"expr": "sum(rate(a[5m]))"}, "-32603: parse error: unclosed", None),
        ({"expr": "sum(rate(a[5m])"}, {"expr": "sum(rate(a[9m]))"}, "-32603: parse error: unclosed", OTHER),
    ],
)
def test_arguments_of_other_tools(
    failed: dict[str, object], correction: dict[str, object], told: str, reason: Unwarranted | None
) -> None:
    assert other_refusal("update_thing", failed, correction, told) is reason


NO_HOTS = "AttributeError: 'DataFrame' object has no attribute 'hots'"
LEAVES_X = "x = sorted(s)\nprint(mean(x), max(x), min(x))"
READS_X = "from statistics import mean\nprint(mean(x), max(x), min(x))"


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        ("print(sqrt(2))", "from math import sqrt\nprint(sqrt(2))", "NameError: name 'sqrt' is not defined", None),
        (LEAVES_X, READS_X, "NameError: name 'mean' is not defined", CHANGED),
        ("hits += 1\nprint(hit)", "hits += 1\nprint(hits)", "NameError: name 'hit' is not defined", CHANGED),
        ("api.make('a')\nprint(ap)", "api.make('a')\nprint(api)", "NameError: name 'ap' is not defined", CHANGED),
        ("print(d['Tea'])", "print(d['tea'])", "KeyError: 'Tea'", None),
        ("print(d['price'])", "print(d['eur'])", "KeyError: 'price'", OTHER),
        ("print(int(s))", "print(int(s) if s else 0)", "ValueError: invalid literal", BYPASS),
        ("assert f(2) == 4", "assert f(2) == 5", "AssertionError", FINDING),
        ("print(1 / n)", "print(1 / n)", "ZeroDivisionError: division by zero", FINDING),
        ("open('/a', 'a').write('x')", "open('/b', 'a').write('x')", "PermissionError: denied", DENIED),
        ("import shop", "import os\nos.system('pip install shop')\nimport shop", "No module named 'shop'", CHANGED),
        ("parse('')", "parse('a')", 'File "/app/p.py", line 4, in parse\nIndexError: string index', FINDING),
        ("print(d.hots.nunique())", "print(d.host.nunique())", NO_HOTS, None),
        ("print(d.hots.nunique())", "print(d.host.head().nunique())", NO_HOTS, OTHER),
        ("print(d.hots.nunique())", "print(d.host.count())", NO_HOTS, OTHER),
        ("print(d.hots.nunique())", "print(d.host[:9].nunique())", NO_HOTS, OTHER),
        ("print(d.hots.nunique())", "print(d.host[d.host > ''].nunique())", NO_HOTS, OTHER),
        ("print(a > 3, nmae)", "print(a < 3, name)", "NameError: name 'nmae' is not defined", OTHER),
        (
            "x = total(s)\nprint(avrage(x))",
            "x = total(s)\nprint(sum(x))",
            "NameError: name 'avrage' is not defined",
            OTHER,
        ),
    ],
)
def test_programs(failed: str, correction: str, told: str, reason: Unwarranted | None) -> None:
    assert python_refusal(failed, correction, told, nothing_reads, lasting=True) is reason


@pytest.mark.parametrize(
    ("failed", "correction", "line", "reason"),
    [
        ("print(averge([1, 2]))", "print(average([1, 2]))", "NameError: name 'averge' is not defined", None),
        ("run(2, 3)", "run(2, 3)", "NameError: name 'averge' is not defined", FINDING),
        ("x = [1, 2]\nprint(x['a'])", "x = [1, 2]\nprint(x[0])", "TypeError: list indices must be integers", OTHER),
        ("print(parse('Ab'))", "print(parse('ab'))", "KeyError: 'Ab'", FINDING),
        ("print({'ab': 1}['Ab'])", "print({'ab': 1}['ab'])", "KeyError: 'Ab'", None),
    ],
)
def test_an_error_without_frames_has_to_be_of_the_program_itself(
    failed: str, correction: str, line: str, reason: Unwarranted | None
) -> None:
    """Nobody knows whether code that it called raised it, which was perhaps tried out."""
    assert python_refusal(failed, correction, line, nothing_reads, lasting=False) is reason


@pytest.mark.parametrize("command", ["!rm", "  !ls", "%time", "%%bash"])
def test_a_cell_with_commands_may_have_run_although_it_is_no_python(command: str) -> None:
    """A notebook runs them, so an error of syntax may be of something that the cell itself has read."""
    program = "rate = rates['eur']\nvalue = literal_eval('1 + 1')\nprint(total * rate, round(value), total, rate)"
    broken, told = program.replace("1 + 1", "1 +"), "SyntaxError: invalid syntax"
    assert python_refusal(f"{program})", program, told, nothing_reads, lasting=True) is None
    for failed, correction in ((f"{command}\n{broken}", program), (broken, f"{command}\n{program}")):
        refused = python_refusal(failed, correction, told, nothing_reads, lasting=True)
        assert refused is Unwarranted.UNREADABLE


def test_what_a_replay_looks_at_is_left_to_it() -> None:
    assert (
        python_refusal(LEAVES_X, READS_X, "NameError: name 'mean' is not defined", nothing_reads, lasting=False) is None
    )


def turn(code: str, status: Status, output: str, name: str = "bash", kind: CallKind = CallKind.SHELL) -> Turn[TextSpan]:
    call = ToolCall(name, {"command": code}, code, 0, 0, None, kind)
    return Turn(TextSpan(""), TextSpan(code), TextSpan(output), (call,), (ToolResult(status, output),))


def test_a_name_that_a_later_program_reads_is_lost() -> None:
    failed = "total = sum(s) + len(s) + max(s)\nprint(Round(total))"
    correction = "print(round(sum(s) + len(s) + max(s)))"
    told = "NameError: name 'Round' is not defined"
    programs = ("print(total)", "print(s)", "print(")

    def later(*programs: str) -> Surroundings:
        turns = [turn(each, Status.OK, "", kind=CallKind.PYTHON) for each in programs]
        return Surroundings(Trajectory(TextSpan(""), tuple(turns)))

    reads = later(*programs[:2])
    assert python_refusal(failed, correction, told, reads.reads_after(1), lasting=True) is None
    assert python_refusal(failed, correction, told, reads.reads_after(0), lasting=True) is CHANGED
    unknown = later(*programs)
    assert python_refusal(failed, correction, told, unknown.reads_after(1), lasting=True) is CHANGED


@pytest.mark.parametrize(
    ("prompt", "result", "reason"),
    [
        ("What is 17 * 23?", "4", None),
        ("What is the product?", "It has 23 rows.", None),
        ("What is the product?", "It has 123 rows of 23.5.", OTHER),
        ("What is the product?", "", OTHER),
    ],
)
def test_a_number_for_a_missing_variable_has_to_be_one_that_was_given(
    prompt: str, result: str, reason: Unwarranted | None
) -> None:
    """The model may have made up any other."""
    around = Surroundings(Trajectory(TextSpan(prompt), (turn("ls", Status.OK, result),)))
    failed = turn("print(17 * n)", Status.ERROR, "NameError: name 'n' is not defined", "python", CallKind.PYTHON)
    failed = replace(
        failed, results=(ToolResult(Status.ERROR, exception=ExceptionInfo("NameError", "name 'n' is not defined")),)
    )
    correction = turn("print(17 * 23)", Status.OK, "391", "python", CallKind.PYTHON)
    assert unwarranted(failed, correction, RepairContext(was_given=around.given_before(1))) is reason
    assert unwarranted(failed, correction) is OTHER


@pytest.mark.parametrize(
    ("status", "output", "name", "reason"),
    [
        (Status.ERROR, "bash: lss: command not found", "bash", None),
        (Status.ERROR, "bash: lss: command not found", "zsh", OTHER),
        (Status.REFUSED, "The user doesn't want to proceed.", "bash", DENIED),
        (Status.TIMEOUT, "", "bash", DENIED),
        (Status.ERROR, "lss: Permission denied", "bash", DENIED),
    ],
)
def test_a_turn_is_judged_by_its_calls(status: Status, output: str, name: str, reason: Unwarranted | None) -> None:
    assert unwarranted(turn("lss", status, output), turn("ls", Status.OK, "a", name)) is reason


NO_SORT = "AttributeError: no kit.sort_of; use sort_new"


@pytest.mark.parametrize(
    ("failed", "correction", "told", "name"),
    [
        ("kit.sort_of(x)", "kit.sort_new(x)", NO_SORT, "sort_new"),
        ("m.sqroot(2)", "m.sqrt(2)", "module 'm' has no attribute 'sqroot'. Did you mean: 'sqrt'?", "sqrt"),
        ("df.append(d)", "df.concat(d)", "'DataFrame' has no attribute 'append'; renamed to `concat`", "concat"),
        ("np.float(2)", "np.float64(2)", "np.float was replaced by numpy.float64", "float64"),
        ("tool --foo 1", "tool --quux 1", "unknown option --foo; did you mean --quux?", "--quux"),
        ("tool ls", "tool list-all", "no such command: ls; similar: list-all", "list-all"),
        ("tool ls", "tool list", "unknown command ls. The most similar command is\n\tlist", "list"),
        ("tool gte x", "tool get x", "no such command 'gte'. Did you mean one of these?\n\tget\n\tgot", "get"),
        ("read(t_2026)", "read(t_2025)", "no t_2026. Did you mean: t_2025?", None),
        # Nobody knows which of several was meant.
        ("tool ls", "tool status", "no such command ls. Did you mean: list, status?", None),
        ("kit.sort_of(x)", "kit.turn_new(x)", NO_SORT, None),
        ("kit.turn_of(x)", "kit.sort_new(x)", NO_SORT, None),
        ("kit.sort_of(kit.sort_of(x))", "kit.sort_of(kit.sort_new(x))", NO_SORT, None),
    ],
)
def test_a_name_that_an_error_offers_stands_for_the_one_that_it_names(
    failed: str, correction: str, told: str, name: str | None
) -> None:
    kind = CallKind.SHELL if failed.startswith("tool") else CallKind.PYTHON
    found = renamed(failed, correction, [told], kind)
    assert list(found.values()) == ([] if name is None else [name])


OFFERED = [
    (
        CallKind.PYTHON,
        "import kit\nprint(kit.sort_of([2, 1]))",
        "sort_of",
        "turn_up",
        "no sort_of; use turn_up",
    ),
    (CallKind.SHELL, "docker ls --all", "ls", "ps", "docker: unknown command: docker ls. Did you mean: ps?"),
    (CallKind.SHELL, "tool run --quick", "--quick", "--fast", "error: unknown option '--quick', use '--fast' instead"),
    (CallKind.SQL, "SELECT a FROM people", "people", "users", 'no such table: people. Did you mean "users"?'),
    (CallKind.OTHER, '{"state": "done"}', "done", "closed", "invalid value 'done'. Did you mean 'closed'?"),
]


@pytest.mark.parametrize(("kind", "code", "old", "new", "told"), OFFERED)
def test_a_call_with_the_offered_name_is_a_correction_if_nothing_else_differs(
    kind: CallKind, code: str, old: str, new: str, told: str
) -> None:
    def call(code: str, status: Status, said: str) -> Turn[TextSpan]:
        arguments = json.loads(code) if kind is CallKind.OTHER else {"code": code}
        made = ToolCall("update", arguments, code, 0, 0, None, kind)
        return Turn(TextSpan(""), TextSpan(code), TextSpan(said), (made,), (ToolResult(status, said),))

    failed = call(code, Status.ERROR, told)
    if kind is CallKind.PYTHON:
        failed = replace(failed, results=(ToolResult(Status.ERROR, exception=ExceptionInfo("AttributeError", told)),))
    right, other = code.replace(old, new), code.replace(old, "xyz")
    assert unwarranted(failed, call(right, Status.OK, ""), REPLAYED) is None
    assert unwarranted(failed, call(other, Status.OK, ""), REPLAYED) is not None
    silent = replace(failed, observation=TextSpan(""), results=(ToolResult(Status.ERROR, "it failed"),))
    assert unwarranted(silent, call(right, Status.OK, ""), REPLAYED) is not None


def test_a_name_that_was_offered_between_failure_and_correction_counts() -> None:
    programs = [
        f"import kit\nprint(kit.sum_{one}(kit.sort_{two}([1])))"
        for one, two in (("of", "up"), ("all", "up"), ("all", "list"))
    ]
    told = ["no kit.sum_of; use sum_all", "no kit.sort_up; use sort_list"]
    first, second = (
        replace(
            turn(program, Status.ERROR, text, "python", CallKind.PYTHON),
            results=(ToolResult(Status.ERROR, exception=ExceptionInfo("AttributeError", text)),),
        )
        for program, text in zip(programs, told, strict=False)
    )
    correction = turn(programs[-1], Status.OK, "1", "python", CallKind.PYTHON)
    assert unwarranted(first, correction, REPLAYED) is OTHER
    assert unwarranted(first, correction, replace(REPLAYED, between=(second,))) is None


@pytest.mark.parametrize(
    ("failed", "correction", "reason"),
    [
        ("import kit\nprint(kit.sum_a(kit.pull()))", "import kit\nprint(kit.sum_c(kit.pull()))", None),
        ("import kit\nprint(kit.pull(), kit.sum_a())", "import kit\nprint(kit.pull(), kit.sum_c())", CHANGED),
        ("import kit\nkit.push()\nprint(kit.sum_a())", "import kit\nkit.push()\nprint(kit.sum_c())", CHANGED),
    ],
)
def test_calls_after_a_missing_name_were_not_made(failed: str, correction: str, reason: Unwarranted | None) -> None:
    told = "AttributeError: module 'kit' has no attribute 'sum_a'. Did you mean: 'sum_c'?"
    names = renamed(failed, correction, [told], CallKind.PYTHON)
    assert names == {"sum_a": "sum_c"}
    failed, told = failed.replace("sum_a", "sum_c"), told.replace("sum_a", "sum_c")
    assert python_refusal(failed, correction, told, nothing_reads, lasting=True) is reason


@pytest.mark.parametrize(("last", "reason"), [(1, None), (2, OTHER)])
def test_a_list_may_stand_for_the_text_of_it(last: int, reason: Unwarranted | None) -> None:
    told = "Traceback (most recent call last):\nTypeError: x must hold integers"
    failed, correction = 'import kit\nprint(kit.sum("[3, 1]"))', f"import kit\nprint(kit.sum([3, {last}]))"
    assert python_refusal(failed, correction, told, nothing_reads, lasting=False) is reason


def given(*values: str) -> RepairContext:
    return RepairContext(Leftovers.REPLAYED, was_given=lambda value: value in values)


@pytest.mark.parametrize(
    ("failed", "told", "correction", "value"),
    [
        (
            "income = 48\nprint(income * rate)",
            "NameError: name 'rate' is not defined",
            "income = 48\nrate = 0.23\nprint(income * rate)",
            "0.23",
        ),
        (
            "def tax(a, rate): return a * rate\nprint(tax(48))",
            "TypeError: tax() missing 1 required positional argument: 'rate'",
            "def tax(a, rate): return a * rate\nprint(tax(48, 0.23))",
            "0.23",
        ),
    ],
)
def test_a_value_that_a_program_lacked_has_to_be_given(failed: str, told: str, correction: str, value: str) -> None:
    wrong = turn(failed, Status.ERROR, told, "python", CallKind.PYTHON)
    wrong = replace(wrong, results=(ToolResult(Status.ERROR, exception=ExceptionInfo(*told.split(": ", 1))),))  # type: ignore[arg-type]
    right = turn(correction, Status.OK, "", "python", CallKind.PYTHON)
    assert unwarranted(wrong, right, given(value)) is None
    assert unwarranted(wrong, right, given()) is OTHER


def test_an_argument_that_a_tool_asks_for_has_to_be_given() -> None:
    told, call = "Missing required field: priority (one of P1, P4)", {"summary": "slow clock"}
    asked = {**call, "priority": "P4"}
    assert other_refusal("create_ticket", call, asked, told, lambda value: value == "P4") is None
    assert other_refusal("create_ticket", call, asked, told) is OTHER
    told = "no configuration file provided: not found"
    failed, right = "docker compose up -d", "docker compose -f c.yml up -d"
    assert shell_refusal(failed, right, told, was_given=lambda value: value == "c.yml") is None
    assert shell_refusal(failed, right, told) is OTHER


@pytest.mark.parametrize(("value", "reason"), [("e41", None), ("e42", OTHER), ("7", OTHER), ("main", OTHER)])
def test_a_handle_that_a_tool_had_told_may_be_given_later(value: str, reason: Unwarranted | None) -> None:
    failed, told = {"element": "Start"}, "Invalid arguments: ref: Required"
    given = {"e41", "7", "main"}
    assert other_refusal("click", failed, {**failed, "ref": value}, told, given.__contains__) is reason


def test_that_a_name_of_the_task_is_not_there_is_a_finding() -> None:
    failed = turn("select a from eu_order", Status.ERROR, "no such table: eu_order", "sql", CallKind.SQL)
    right = turn("select a from eu_orders", Status.OK, "1", "sql", CallKind.SQL)
    assert unwarranted(failed, right, RepairContext(task="user: Show a of the European orders.")) is None
    assert unwarranted(failed, right, RepairContext(task="user: Show a of eu_order.")) is FINDING
    both = RepairContext(task="user: Show a of eu_order, now eu_orders.", was_given=lambda name: name == "eu_orders")
    assert unwarranted(failed, right, both) is None


def test_an_error_that_the_task_asks_for_is_a_finding() -> None:
    failed, right = turn("lss", Status.ERROR, "bash: lss: command not found"), turn("ls", Status.OK, "a")
    assert unwarranted(failed, right, RepairContext(task="user: List the files.")) is None
    assert unwarranted(failed, right, RepairContext(task="user: Show me which error lss gives.")) is FINDING


@pytest.mark.parametrize(
    ("told", "done"),
    [
        ("Issue #45 was created, but adding labels failed: label 'bgu' does not exist", True),
        ("The file /r/a.py has been edited.\nERROR: the file no longer parses", True),
        ("No changes were applied: old_str did not appear", False),
        ("The row could not be inserted", False),
        ("File has been modified since it was read", False),
        ("label 'bgu' must be created first", False),
    ],
)
def test_a_tool_may_say_that_it_did_something_although_the_call_failed(told: str, done: bool) -> None:
    assert tells_of_change(told) is done


def test_one_place_is_no_correction_for_an_edit_of_all() -> None:
    wide, narrow = ({"path": "/a", "old_str": old, "new_str": f"{old}0"} for old in ("n = 1", "if x:\n n = 1"))
    told = "No replacement was performed. Multiple occurrences of old_str in lines [8, 31]."
    assert edit_refusal(wide, narrow, told, "Raise n in f.") is None
    assert edit_refusal(wide, narrow, told, "Raise both numbers.") is OTHER


def test_a_value_of_a_list_that_the_tool_takes_has_to_be_like_the_wrong_one() -> None:
    told = ['invalid argument "opened" for --state: valid values are {open|closed|all}']
    assert renamed("gh --state opened", "gh --state open", told, CallKind.SHELL) == {"opened": "open"}
    assert renamed("gh --state opened", "gh --state all", told, CallKind.SHELL) == {}
    assert renamed("check --n 4", "check --n 5", ["n was 4, expected 5"], CallKind.SHELL) == {}


@pytest.mark.parametrize(
    ("failed", "correction", "told", "reason"),
    [
        ("print(2.0 ^ 3)", "print(2.0 ** 3)", "TypeError: unsupported operand type(s) for ^: 'float' and 'int'", None),
        (
            "print(2.0 - 'a')",
            "print(2.0 / 'a')",
            "TypeError: unsupported operand type(s) for -: 'float' and 'str'",
            OTHER,
        ),
    ],
)
def test_an_operator_of_another_language_is_a_slip(
    failed: str, correction: str, told: str, reason: Unwarranted | None
) -> None:
    assert python_refusal(failed, correction, told, nothing_reads, lasting=True) is reason


def test_the_same_call_again_shows_that_the_mistake_was_not_in_the_call() -> None:
    told = "bash: lss: command not found"
    assert unwarranted(turn("lss", Status.ERROR, told), turn("lss", Status.OK, "a")) is FINDING


def test_what_a_program_printed_before_it_failed_has_to_be_printed_again() -> None:
    told = "['Rev']\nNameError: name 'lenn' is not defined"
    failed = turn("print(list(d)); print(lenn(d))", Status.ERROR, told, "python", CallKind.PYTHON)
    correction = turn("print(list(d)); print(len(d))", Status.OK, "1", "python", CallKind.PYTHON)
    assert unwarranted(failed, correction, REPLAYED) is FINDING


def test_words_of_the_call_in_a_message_are_not_the_tools() -> None:
    arguments = {"command": "str_replace", "path": "/a.py", "old_str": "timeout = 1", "new_str": "timeout = 2"}
    right = {**arguments, "old_str": "timeout=1", "new_str": "timeout=2"}
    calls = [ToolCall("edit", each, "", 0, 0, None, CallKind.EDIT) for each in (arguments, right)]
    told = "old_str `timeout = 1` did not appear verbatim in /a.py"
    failed, correction = (
        Turn(TextSpan(""), TextSpan(""), TextSpan(text), (call,), (ToolResult(status, text),))
        for call, status, text in zip(calls, (Status.ERROR, Status.OK), (told, "edited"), strict=True)
    )
    assert unwarranted(failed, correction) is None


def test_words_of_any_case_are_written_in_small_letters() -> None:
    patterns = {name: each.pattern for name, each in vars(words).items() if isinstance(each, words.AnyCase)}
    assert len(patterns) > 10
    for name, pattern in patterns.items():
        assert re.sub(r"\\[A-Z]", "", pattern).islower(), name
    assert words.SYNTAX.search("SyntaxError")
    assert words.DENIAL.search("PERMISSION DENIED")
