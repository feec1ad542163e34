"""Every command of `cleaner-sandbox` is started with every option that it has, and what the option says happens.

`STARTS` holds the command lines. One test compares them with the frozen list of options, and the tests below run them.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner_sandbox import Tier
from tests.conftest import DOCS, needs
from tests.service.test_serve import SECONDS, call, serving
from tests.test_built import folder, requirements
from tests.test_frozen import OPTIONS

pytestmark = pytest.mark.timeout(300)
__all__ = ["folder", "requirements"]  # fixtures

PACKAGE = OPTIONS.parents[1]
TOKEN = "everyday-0123456789abcdef"
STARTS = {
    "build": "env build sums {requirements} --base {base} --folder {folder}/made --json",
    "list": "env list --folder {folder}/made --json",
    "remove": "env remove sums --folder {folder}/made",
    "serve": "serve --host 127.0.0.1 --port 0 --slots 1 --min-tier T2 --token-file {tokens} --env {folder}/made/sums "
    "--cpu-seconds 0.5 --memory-mb 200 --sessions 1 --session-memory-mb 512 --queue 7 --drain-seconds 1 --log-code "
    "--session-idle-seconds 300 --session-ttl-seconds 600",
    "check": "check --tier T2 --only dodge_exit_137 --no-proof --json",
    "check a node": "check --sandbox {url} --sandbox-token {token} --only dodge_exit_137 --no-proof",
    "check layers": "check --only dodge_exit_137 --proof --layers",
    "mcp": "mcp --http 127.0.0.1:0 --token-file {tokens} --sandbox {url} --sandbox-token {token}",
    "up": "up --ray --ray-address 127.0.0.1:1 --token-file {tokens} --slots 2 --sessions 4",
    "down": "down --ray --ray-address 127.0.0.1:1",
}


def listed() -> Iterator[tuple[str, str]]:
    """The command and option of each line of the frozen list; a flag and its opposite are two."""
    for line in OPTIONS.read_text().splitlines():
        command, names, _ = line.removeprefix("cleaner-sandbox ").split("  ")
        yield from ((command, name) for name in names.split("/"))


COMMANDS = {command for command, _ in listed()}


def options_of(line: str) -> set[tuple[str, str]]:
    """The command of a line, with each of its options."""
    words = line.split()
    commands = COMMANDS & {" ".join(words[:1]), " ".join(words[:2])}
    return {(command, word) for command in commands for word in words if word.startswith("--")}


def test_everyday_commands_are_started_with_every_option() -> None:
    started = set[tuple[str, str]]().union(*map(options_of, STARTS.values()))
    assert set(listed()) == started, "start what was added in STARTS, with a test of what it does"


def test_everyday_commands_of_the_pages_have_the_options_that_they_are_given() -> None:
    pages = [*DOCS.glob("sandbox*.md"), PACKAGE / "README.md", *(PACKAGE / "deploy").rglob("*.md")]
    given = set[tuple[str, str]]()
    for page in pages:
        for line in page.read_text().replace("cleaner sandbox ", "cleaner-sandbox ").splitlines():
            for part in line.split("cleaner-sandbox ")[1:]:
                given |= options_of(part.split("#")[0].split("`")[0])
    assert {command for command, _ in given} >= {"serve", "check", "mcp"}
    assert given - {*listed(), *((command, "--help") for command in COMMANDS)} == set()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[tokens.me]\ntoken = "{TOKEN}"\n')
    return path


def run(line: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cleaner_sandbox", *shlex.split(line)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def test_everyday_environments_are_built_listed_served_and_removed(
    tokens: Path, tmp_path: Path, folder: Path, requirements: Path
) -> None:
    needs(Tier.T2)
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "README").write_text("Read me.")
    names = {"tokens": tokens, "requirements": requirements, "folder": folder, "base": tmp_path / "repo"}
    built = run(STARTS["build"].format(**names))
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["name"] == "sums"
    shown = run(STARTS["list"].format(**names))
    assert json.loads(shown.stdout)["environments"] == [json.loads(built.stdout)]
    with serving(*STARTS["serve"].format(**names).split()[1:]) as (process, url, ready):
        assert ready["address"][0] == "127.0.0.1"
        health = ready["health"]
        assert (health["slots"], health["most_waiting"], health["most_sessions"]) == (1, 7, 1)
        assert health["tier"] >= 2
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            call(url, {"code": "1"})
        refused.value.close()
        doubled = call(url, {"code": "import tinysums\nprint(tinysums.double(21))", "environment": "sums"}, TOKEN)
        assert (doubled["output"], doubled["environment"]) == ("42\n", "sums")
        assert call(url, {"code": "while True: pass"}, TOKEN)["status"] == "timeout"
        assert call(url, {"code": "bytearray(300 << 20)"}, TOKEN)["exception"]["type"] == "MemoryError"
        opened = call(url, {"environment": "sums"}, TOKEN, "/v1/sessions")
        path = f"/v1/sessions/{opened['session']}/run"
        assert call(url, {"code": "open('README').read()"}, TOKEN, path)["output"] == "'Read me.'\n"
        assert process.stdout is not None
        assert "tinysums.double(21)" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert run(STARTS["remove"].format(**names)).returncode == 0
    assert json.loads(run(STARTS["list"].format(**names)).stdout)["environments"] == []


def test_everyday_check_runs_the_attacks_that_are_named() -> None:
    needs(Tier.T2)
    done = run(STARTS["check"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["attacks"] == 1


def test_everyday_check_of_a_node_with_a_token(tokens: Path) -> None:
    needs(Tier.T2)
    with serving("--token-file", str(tokens)) as (_, url, _):
        done = run(STARTS["check a node"].format(url=url, token=TOKEN))
        refused = run(STARTS["check a node"].format(url=url, token="another-0123456789"))
    assert done.returncode == 0, done.stderr
    assert refused.returncode != 0


@pytest.mark.slow
def test_everyday_check_of_each_layer() -> None:
    needs(Tier.T2)
    done = run(STARTS["check layers"], 280)
    assert done.returncode == 0, done.stderr
    assert "seccomp" in done.stdout


def test_everyday_mcp_over_http_calls_a_node_with_its_token(tokens: Path) -> None:
    needs(Tier.T2)
    pytest.importorskip("mcp", reason="needs the extra cleaner-sandbox[mcp]")
    with serving("--token-file", str(tokens)) as (_, url, _):
        line = STARTS["mcp"].format(tokens=tokens, url=url, token=TOKEN)
        process = subprocess.Popen(
            [sys.executable, "-m", "cleaner_sandbox", *line.split()], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[0]
            assert address.startswith("http://127.0.0.1:")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(address, timeout=SECONDS)
            refused.value.close()
            assert refused.value.code == 401
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="would look for a cluster")
@pytest.mark.parametrize("name", ["up", "down"])
def test_everyday_commands_for_ray_say_what_they_need(tokens: Path, name: str) -> None:
    done = run(STARTS[name].format(tokens=tokens))
    assert (done.returncode, "Ray" in done.stderr) == (1, True), done.stderr
