"""Sessions of bash: what is kept from cell to cell, what isn't, and that going back puts all of it back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cleaner_sandbox import Cell, CellOutcome, Commit, Language, Limits, Session, SessionRequest
from cleaner_sandbox.client import SandboxClient, SyncSandboxClient
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.serving import asynchronous, served

REQUEST = SessionRequest("bare", language=Language.BASH)


class Shell:
    """A session, driven from synchronous tests."""

    def __init__(self, driver: Driver, session: Session) -> None:
        self._driver, self._session = driver, session

    def run(self, code: str, **options: Any) -> CellOutcome:
        return self._driver.wait(self._session.run(Cell(code, **options)))

    def out(self, code: str, **options: Any) -> str:
        """What a cell prints that has to succeed."""
        outcome = self.run(code, **options)
        assert outcome.result.status is RunStatus.OK, outcome
        return outcome.result.output

    def rollback(self, checkpoint: int | None = None) -> int:
        return self._driver.wait(self._session.rollback(checkpoint))


@pytest.fixture
def shell(t2: Driver) -> Iterator[Shell]:
    session = t2.wait(t2.node.open_session(REQUEST))
    yield Shell(t2, session)
    t2.wait(session.close())


def test_folder_directory_and_environment_roll_back_together(shell: Shell) -> None:
    first = shell.run("mkdir src; cd src; export MODE=one; plain=1; echo 1 > file").checkpoint
    shell.run("echo 2 > file; cd ..; rm -r src; MODE=two; unset plain; mkdir other; cd other")
    assert shell.out("pwd; echo $MODE $plain; ls ..") == "/box/run/work/other\ntwo\nother\n"
    assert shell.rollback(first) == first
    assert shell.out("pwd; sh -c 'echo $MODE'; echo $plain; cat file") == "/box/run/work/src\none\n1\n1\n"


@pytest.mark.parametrize(
    "failing",
    ["x=2; cd /tmp; rm ~/file; false", "x=2; exit 3", "x=2; kill -9 $$", "x=2; kill -9 $PPID; sleep 9", "x=2; if )"],
)
def test_a_cell_that_fails_leaves_no_trace(shell: Shell, failing: str) -> None:
    shell.run("x=1; echo kept > file")
    outcome = shell.run(failing)
    assert (outcome.committed, outcome.checkpoint) == (False, 1)
    assert outcome.result.status not in (RunStatus.OK, RunStatus.FAULT)
    assert shell.out('echo $x "$PWD"; cat ~/file') == "1 /box/run/work\nkept\n"


def test_statuses_are_those_of_runs(shell: Shell) -> None:
    assert shell.run("exit 7").run.exit_code == 7
    assert shell.run("exit 7").result.explanation == "The program exited with code 7."
    crashed = shell.run("kill -TERM $$")
    assert (crashed.result.status, crashed.run.signal) == (RunStatus.CRASHED, 15)
    for code, status, limits in (
        ("while :; do :; done", RunStatus.TIMEOUT, Limits(cpu_seconds=0.3)),
        ("sleep 60", RunStatus.TIMEOUT, Limits(wall_seconds=0.5)),
        ("yes", RunStatus.OUTPUT_LIMIT, Limits(output_bytes=4096)),
    ):
        assert shell.run(code, limits=limits).result.status is status
    assert shell.out("echo on") == "on\n"


def test_always_and_never_commit(shell: Shell) -> None:
    assert shell.run("x=1; cd /tmp; false", commit=Commit.ALWAYS).committed
    assert shell.out("echo $x; pwd") == "1\n/tmp\n"
    assert shell.out("x=2; echo $x", commit=Commit.NEVER) == "2\n"
    assert shell.out("echo $x") == "1\n"


def test_exit_ends_the_cell_and_keeps_its_state(shell: Shell) -> None:
    assert shell.out("x=1; cd /tmp; exit; x=2") == ""
    assert shell.out("echo $x; pwd") == "1\n/tmp\n"


def test_what_is_not_kept(shell: Shell) -> None:
    """As docs/sandbox.md says it."""
    assert shell.out(
        "trap 'echo bye' EXIT; trap : USR1; x=1; set -x; exec 7> file; SECONDS=50; ulimit -n 40; pushd /tmp"
    ) == ("/tmp ~\nbye\n")
    outcome = shell.run("trap -p USR1; echo $x $?; { echo 1 >&7; } 2>/dev/null; echo $SECONDS; ulimit -n; dirs; jobs")
    assert outcome.result.output == "1 0\n0\n256\n/tmp\n"
    assert "+" not in outcome.result.stderr


def test_what_says_nothing_of_itself_keeps_the_shell_before(shell: Shell) -> None:
    shell.run("x=1")
    assert shell.run("x=2; echo 2 > file; exec true").committed
    assert shell.out("echo $x; cat file") == "1\n2\n"
    assert shell.run("x=3; f() { exit 0; }; f").committed
    assert shell.out("echo $x") == "1\n"


def test_background_processes_live_on_and_keep_the_state_from_being_forked(shell: Shell) -> None:
    outcome = shell.run("(while [ ! -e word ]; do sleep 0.01; done; cp word heard) & x=1")
    assert outcome.not_checkpointable == ("process",)
    assert shell.out("echo hi > word; while [ ! -s heard ]; do sleep 0.01; done; cat heard; echo $x") == "hi\n1\n"


def test_random_goes_on_and_repeats_after_a_rollback(shell: Shell) -> None:
    shell.run("true")
    first = shell.out("echo $RANDOM $RANDOM")
    second = shell.out("echo $RANDOM $RANDOM")
    assert first != second
    shell.rollback(1)
    assert (shell.out("echo $RANDOM $RANDOM"), shell.out("echo $RANDOM $RANDOM")) == (first, second)


def test_a_folder_that_is_gone_is_left(shell: Shell) -> None:
    shell.run("mkdir a; x=1")
    shell.run("cd a; rmdir ../a; x=2")
    assert shell.out("pwd; echo $x") == "/box/run/work\n2\n"


def test_more_than_a_megabyte_of_variables_is_a_failure(shell: Shell) -> None:
    shell.run("x=$(head -c 900000 /dev/zero | tr '\\0' a)")
    outcome = shell.run("y=$x")
    assert (outcome.result.status, outcome.committed) == (RunStatus.ERROR, False)
    assert "larger than 1 MB" in outcome.result.stderr
    assert shell.out("echo ${#x} ${#y}") == "900000 0\n"


def test_the_cell_has_no_descriptor_of_the_sandbox(shell: Shell) -> None:
    probe = "import os\nfor n in range(256):\n try: os.fstat(n)\n except OSError: continue\n print(n)\n"
    assert shell.out("python3 probe", files={"probe": probe.encode()}) == "0\n1\n2\n"
    assert shell.out("exec 3> file; echo three >&3; cat file") == "three\n"


def test_files_stdin_and_fetch(shell: Shell) -> None:
    outcome = shell.run("read a; echo $a; cat in > out", stdin="line\n", files={"in": b"data"}, fetch=("out",))
    assert (outcome.result.output, dict(outcome.run.files)) == ("line\n", {"out": b"data"})


def test_programs_that_bash_can_not_be_given_are_refused(shell: Shell) -> None:
    outcome = shell.run("echo \0")
    assert (outcome.result.status, outcome.committed) == (RunStatus.REFUSED, False)


def test_too_few_open_files_are_refused(t2: Driver) -> None:
    with pytest.raises(ValueError, match="open_files"):
        t2.wait(t2.node.open_session(SessionRequest("bare", Limits(open_files=20), language=Language.BASH)))


@asynchronous
async def test_over_http_and_in_threads(t2: Driver) -> None:
    async with served(t2.node) as (url, _), SandboxClient(url) as sandbox:
        session = await sandbox.open_session(REQUEST)
        await session.run("cd /tmp; x=1")
        await session.put("file", b"put")
        assert (await session.run("echo $x; pwd; cat ~/file")).result.output == "1\n/tmp\nput"
        assert await session.rollback(0) == 0
        assert (await session.run("pwd; ls -A")).result.output == "/box/run/work\n"
        await session.close()

        def use() -> str:
            with SyncSandboxClient(url) as threads:
                shell = threads.open_session(REQUEST)
                shell.run("f() { echo from f; }")
                output = shell.run("f").result.output
                shell.close()
                return output

        assert await asyncio.to_thread(use) == "from f\n"
