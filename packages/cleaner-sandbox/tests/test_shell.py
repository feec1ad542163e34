"""One test per row of the table of bash's semantics in `docs/sandbox.md`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cleaner_sandbox import Language, RunOutcome
from cleaner_sandbox.protocol.requests import MOST_SHELL_BYTES
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import DOCS, Driver


def bash(box: Driver, code: str, **options: Any) -> RunOutcome:
    """Run a program of bash."""
    return box.outcome(code, language=Language.BASH, **options)


def test_the_exit_code_decides(t2: Driver) -> None:
    for code, status, exit_code in (
        ("true", RunStatus.OK, 0),
        ("", RunStatus.OK, 0),
        ("false; echo on", RunStatus.OK, 0),
        ("echo to stderr >&2", RunStatus.OK, 0),
        ("echo on; false", RunStatus.ERROR, 1),
        ("set -e; false; echo on", RunStatus.ERROR, 1),
        ("exit 7", RunStatus.ERROR, 7),
        ("no_such_program", RunStatus.ERROR, 127),
        ("(kill -SEGV $BASHPID)", RunStatus.ERROR, 139),
    ):
        outcome = bash(t2, code)
        assert (outcome.result.status, outcome.exit_code) == (status, exit_code), code
        explanation = "" if status is RunStatus.OK else f"The program exited with code {exit_code}."
        assert outcome.result.explanation == explanation


def test_a_signal_to_the_shell_is_a_crash(t2: Driver) -> None:
    for name, number in (("KILL", 9), ("TERM", 15), ("PIPE", 13)):
        outcome = bash(t2, f"kill -{name} $$")
        assert (outcome.result.status, outcome.signal) == (RunStatus.CRASHED, number)


def test_lines_are_the_programs_own_and_there_is_no_preamble(t2: Driver) -> None:
    result = bash(t2, "#!/bin/bash\nno_such_program\necho $LINENO $0 $#").result
    assert (result.output, result.stderr) == ("3 bash 0\n", "bash: line 2: no_such_program: command not found\n")
    broken = bash(t2, "echo before\nif )").result
    assert (broken.status, broken.output) == (RunStatus.ERROR, "before\n")
    assert "line 2: syntax error near unexpected token `)'" in broken.stderr
    assert "`if )'" in broken.stderr


def test_limits_are_those_of_any_run(t2: Driver) -> None:
    spun = bash(t2, "echo begun; while :; do :; done", cpu_seconds=0.5).result
    assert (spun.status, spun.output) == (RunStatus.TIMEOUT, "begun\n")
    assert bash(t2, "sleep 60", wall_seconds=0.5).result.status is RunStatus.TIMEOUT
    assert bash(t2, "yes", output_bytes=4096).result.status is RunStatus.OUTPUT_LIMIT
    assert bash(t2, "head -c 20M /dev/zero > file", disk_mb=1).result.status is RunStatus.ERROR
    outcome = bash(t2, "a=$(head -c 400M /dev/zero | tr '\\0' x); echo ${#a}", memory_mb=64)
    assert outcome.result.status in (RunStatus.ERROR, RunStatus.MEMORY)
    assert "fork: " in bash(t2, ":() { : | : & }; :; wait; sleep 0.2", processes=8).result.stderr


def test_pipes_end_as_usual(t2: Driver) -> None:
    outcome = bash(t2, "yes | head -n 2; echo ${PIPESTATUS[*]}")
    assert (outcome.result.output, outcome.result.stderr) == ("y\ny\n141 0\n", "")


def test_what_is_left_running_ends_with_the_run(t2: Driver) -> None:
    assert bash(t2, "sleep 60 & echo begun").result.output == "begun\n"
    assert bash(t2, "(sleep 60; echo late > file) & disown; wait -n & :", fetch=("file",)).files == {}


def test_stdin_files_and_fetch(t2: Driver) -> None:
    outcome = bash(
        t2,
        "read line; cat in/a - > out; echo $line",
        stdin="one\ntwo\n",
        files={"in/a": b"a\n"},
        fetch=("out",),
    )
    assert (outcome.result.output, dict(outcome.files)) == ("one\n", {"out": b"a\ntwo\n"})
    assert bash(t2, "read line").exit_code == 1


def test_random_is_seeded(t2: Driver) -> None:
    first, again, other = (bash(t2, "echo $RANDOM $RANDOM", seed=seed).result.output for seed in (3, 3, 4))
    assert first == again != other


def test_home_and_path(t2: Driver) -> None:
    output = bash(t2, 'cd; pwd; echo "$HOME" "$SHELL"; ls -A; command -v ls python3; umask').result.output
    home, both, ls, python, umask = output.split("\n")[:-1]
    assert both == f"{home} /bin/bash"
    assert ls == "/usr/bin/ls"
    assert python.endswith("/python3")
    assert umask == "0022"


def test_python_in_the_shell_has_the_sets_packages(t2: Driver) -> None:
    outcome = bash(t2, "python3 - <<'END'\nimport numpy\nprint(numpy.arange(3).sum())\nEND", cpu_seconds=30.0)
    assert (outcome.result.output, outcome.environment) == ("3\n", "science")


def test_system_files_are_read_only(t2: Driver) -> None:
    for path in ("/usr/bin/x", "/etc/passwd", "/x", "/dev/x"):
        assert bash(t2, f": > {path}").result.status is RunStatus.ERROR
    assert bash(t2, "echo x > /tmp/x && echo y > /dev/shm/y && echo z > ~/z").result.status is RunStatus.OK


def test_there_is_no_network_and_no_proc(t2: Driver) -> None:
    assert bash(t2, "exec 3<>/dev/tcp/127.0.0.1/80").result.status is RunStatus.ERROR
    assert bash(t2, "ls -A /proc").result.output == ""
    assert "/dev/fd/" in bash(t2, "cat <(echo 1)").result.stderr


def test_owners_can_be_kept_and_not_changed(t2: Driver) -> None:
    assert bash(t2, "echo x > a; chmod 640 a; cp -p a b; cp -a a c; stat -c %a b c").result.output == "640\n640\n"
    assert bash(t2, "echo x > a; chown 0 a").result.stderr.endswith("Operation not permitted\n")


@pytest.mark.parametrize("code", ["echo a\0b", "echo \ud800", "#" * (MOST_SHELL_BYTES + 1)])
def test_programs_that_bash_can_not_be_given_are_refused(t2: Driver, code: str) -> None:
    result = bash(t2, code).result
    assert (result.status, result.output) == (RunStatus.REFUSED, "")
    assert result.explanation.startswith("A bash program")


def test_the_longest_program_runs(t2: Driver) -> None:
    code = "echo é; #"
    code += "x" * (MOST_SHELL_BYTES - len(code.encode()))
    assert bash(t2, code).result.output == "é\n"


def test_below_tier_2_there_is_no_shell(t1: Driver) -> None:
    result = bash(t1, "echo 1").result
    assert result.status is RunStatus.REFUSED
    assert "tier 2" in result.explanation


@pytest.mark.skipif(not DOCS.exists(), reason="the pages are in the repository, not in the archive of the package")
def test_the_table_in_the_docs_names_these_tests() -> None:
    text = (DOCS / "sandbox.md").read_text().partition("\n## Bash\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"`(test_\w+)`", text))
    here = {name for name in globals() if name.startswith("test_")}
    assert here - rows == {"test_the_table_in_the_docs_names_these_tests"}
    assert rows <= here
