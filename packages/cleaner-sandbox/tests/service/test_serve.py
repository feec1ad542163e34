"""`cleaner-sandbox serve` as an operator meets it: a real process, signals, and what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import pytest

from cleaner_sandbox import Tier, build_environment
from cleaner_sandbox.inside import kernel
from cleaner_sandbox.processes import descendants
from cleaner_sandbox.service.server import NICE
from tests.conftest import needs

START = "from cleaner_sandbox.cli import sandbox; sandbox()"
COMMAND = [sys.executable, "-c", START]
NO_USER_NAMESPACES = """
import os, sys
from pyseccomp import ALLOW, ERRNO, MASKED_EQ, Arg, SyscallFilter
program = SyscallFilter(ALLOW)
program.add_rule(ERRNO(1), "unshare", Arg(0, MASKED_EQ, 0x10000000, 0x10000000))
program.load()
os.execv(sys.executable, [sys.executable, "-m", "cleaner_sandbox", *sys.argv[1:]])
"""
"""The command under a filter like Docker's default one."""
SECONDS = 90


@contextlib.contextmanager
def serving(
    *options: str, stderr: IO[str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, Any]]]:
    """A node in its own process: the process, its address, and its first line."""
    command = [*COMMAND, "serve", "--port", "0", "--slots", "2", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        host, port = ready["address"]
        yield process, f"http://{host}:{port}", ready
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def call(url: str, body: object, token: str | None = None, path: str = "/v1/run") -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return json.load(response)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_serve_says_what_it_can_hold_logs_calls_without_their_code_and_leaves_nothing_behind_at_sigterm() -> None:
    with serving() as (process, url, ready):
        assert ready["event"] == "ready"
        assert ready["health"]["tier"] >= 1
        assert ready["health"]["slots"] == 2
        assert ready["health"]["connections"] > 0
        assert call(url, {"code": "print('secret')", "id": "me"})["output"] == "secret\n"
        assert process.stdout is not None
        line = process.stdout.readline()
        assert (json.loads(line)["id"], json.loads(line)["status"]) == ("me", "ok")
        assert "secret" not in line
        everything = [*children(process.pid), *(g for c in children(process.pid) for g in children(c))]
        assert len(everything) > 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        assert [pid for pid in everything if os.path.exists(f"/proc/{pid}")] == []


def test_a_node_with_a_token_file_answers_only_who_has_a_token_and_logs_code_if_asked(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[tokens.me]\ntoken = "0123456789abcdef"\n')
    with serving("--token-file", str(tokens), "--log-code") as (process, url, _):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            call(url, {"code": "print(1)"})
        refused.value.close()
        assert call(url, {"code": "print('shown')"}, "0123456789abcdef")["output"] == "shown\n"
        assert process.stdout is not None
        line = process.stdout.readline()
    assert (json.loads(line)["code"], json.loads(line)["tenant"]) == ("print('shown')", "me")
    assert "0123456789abcdef" not in line


def test_finding_a_node_starts_with_environments_and_its_sessions_begin_with_their_files(tmp_path: Path) -> None:
    needs(Tier.T2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "README").write_text("Read me.")
    build_environment("repo", base=tmp_path / "source", folder=tmp_path / "built")
    with serving("--env", f"{tmp_path}/built/repo") as (_, url, _):
        opened = call(url, {"environment": "repo"}, path="/v1/sessions")
        shown = call(url, {"code": "open('README').read()"}, path=f"/v1/sessions/{opened['session']}/run")
    assert shown["output"] == "'Read me.'\n"


def test_the_server_comes_back_by_itself_on_the_same_address_and_nobody_cries(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as stderr, serving(stderr=stderr) as (process, url, _):
        (server,) = children(process.pid)
        with ThreadPoolExecutor(4) as pool:
            lost = [pool.submit(call, url, {"code": "print(1)"}) for _ in range(40)]
            call(url, {"code": "print(1)"})
            os.kill(server, signal.SIGKILL)
        assert [each for each in lost if not isinstance(each.exception(), OSError | HTTPException | None)] == []
        # No waiting for it: the connection is taken by the socket's backlog and answered by the next server.
        assert call(url, {"code": "print(2)"})["output"] == "2\n"
        assert children(process.pid) != [server]
        assert (tmp_path / "stderr").read_text() == ""


def test_a_process_in_no_group_gives_way_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel shows an empty line of init and of what it starts before anything begins a session."""
    (tmp_path / "1").touch()
    monkeypatch.setattr(kernel, "GROUP", f"{tmp_path}/{{}}")
    assert kernel.nice_of_group(1) == kernel.nice_of_group(2) == 0


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(), reason="nothing goes first here")
def test_the_server_and_its_zygotes_go_before_runs_and_sessions() -> None:
    def sleepers(above: int) -> list[int]:
        return [pid for pid in descendants([above]) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]

    with serving("--min-tier", "T2") as (process, url, _), ThreadPoolExecutor(1) as pool:
        (server,) = children(process.pid)
        assert {kernel.nice_of_group(pid) for pid in (server, *children(server))} == {NICE}
        code = "import subprocess\nprocess = subprocess.Popen(['sleep', '600'])"
        session = call(url, {}, path="/v1/sessions")["session"]
        call(url, {"code": code}, path=f"/v1/sessions/{session}/run")
        (sleeper,) = sleepers(server)
        state = parent(sleeper)
        assert [kernel.nice_of_group(pid) for pid in (sleeper, state, parent(state))] == [0, 0, 0]
        run = pool.submit(call, url, {"code": f"{code}\nprocess.wait()", "limits": {"wall_seconds": 10}})
        while len(found := set(sleepers(server)) - {sleeper}) < 1:
            assert not run.done()
        (sleeper,) = found
        assert [kernel.nice_of_group(pid) for pid in (sleeper, parent(sleeper))] == [0, 0]
        os.kill(sleeper, signal.SIGKILL)
        assert run.result()["status"] == "ok"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_supervisor_takes_everything_along() -> None:
    with serving() as (process, url, _):
        call(url, {"code": "print(1)"})
        (server,) = children(process.pid)
        everything = [os.pidfd_open(pid) for pid in (server, *children(server))]
        process.kill()
        for pidfd in everything:
            assert select.select([pidfd], [], [], SECONDS)[0], "still alive"
            os.close(pidfd)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_reachable_address_is_refused_without_a_token(host: str) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--host", host, "--port", "0"], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 1
    assert "--token-file" in done.stderr


def test_a_node_that_can_not_reach_its_tier_says_so_and_is_not_started_again() -> None:
    command = [sys.executable, "-c", NO_USER_NAMESPACES, "serve", "--port", "0", "--min-tier", "T2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 78
    assert '"event":"unusable"' in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("settings", ["{", '{"node": {"limits": {"cpu_seconds": null}}}'])
def test_settings_that_can_not_be_used_end_the_server_with_the_reason(settings: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "cleaner_sandbox.service.server", str(listening.fileno()), settings]
        done = subprocess.run(command, pass_fds=[listening.fileno()], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 78
    assert json.loads(done.stdout)["event"] == "unusable"
    assert done.stderr == ""


BROKEN_SET = """
from cleaner_sandbox import NodeConfig, Environment
from cleaner_sandbox.service import ServiceConfig, Supervisor, bind
config = ServiceConfig(NodeConfig(slots=1, environments=(Environment("broken", modules=("no_such_module",)),)))
raise SystemExit(Supervisor(bind("127.0.0.1", 0, tokens=False), config).run())
"""


def test_a_node_whose_slots_never_start_ends_and_says_why() -> None:
    done = subprocess.run([sys.executable, "-c", BROKEN_SET], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 78
    *tries, last = (json.loads(line) for line in done.stdout.splitlines())
    assert {each["event"] for each in tries} == {"broken"}
    assert all("no_such_module" in each["message"] for each in tries)
    assert last["event"] == "unusable"
    assert "the lines before this one say why" in last["message"]


def test_too_few_descriptors_are_said_at_start() -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)); {START}"
    done = subprocess.run(
        [sys.executable, "-c", limited, "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 78
    assert "open files" in done.stdout


def test_help_shows_an_example_and_the_groups_help_imports_no_server() -> None:
    done = subprocess.run([*COMMAND, "serve", "--help"], capture_output=True, text=True, timeout=SECONDS)
    assert "Example:" in done.stdout
    light = "import sys; from click.testing import CliRunner; from cleaner_sandbox.cli import sandbox\n"
    light += "print(CliRunner().invoke(sandbox, ['--help']).output); assert 'uvicorn' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, "sandbox" in done.stdout) == (0, True), done.stderr
