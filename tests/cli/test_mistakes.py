"""Commands run wrongly on purpose: one line that says what happened and what to do, never a traceback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.view import DEMO
from cleaner_sandbox.client import client
from cleaner_sandbox.node.zygotes import Zygote, ZygoteError
from tests.logs.cases import CASES
from tests.logs.rendering import openai
from tests.restricted import cleaner

NOWHERE = "http://127.0.0.1:9"
ROLLOUT = ["rollout", "--tasks", "tasks.jsonl", "--model", "m", "--engine", "chat"]
TASK = '{"id": "t/1", "prompt": [{"role": "user", "content": "1+1?"}], "grader": "math", "truth": "2"}\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    Path("tasks.jsonl").write_text(TASK)
    Path("broken.jsonl").write_text('{"messages": [\n')
    Path("broken.yaml").write_text("a: [1\n")
    Path("recipe.yaml").write_text("model: {path: $NO_SUCH_VARIABLE/model}\n")
    Path("nothing.json").write_text("{}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sandbox", "serve", "--port", "99999"], "99999 is not in the range"),
        (["sandbox", "serve", "--slots", "0"], "0 is not in the range"),
        (["sandbox", "serve", "--cpu-seconds", "0"], "0.0 is not in the range x>0"),
        (["sandbox", "serve", "--cpu-seconds", "inf"], "inf is not a finite number of seconds"),
        (["sandbox", "serve", "--cpu-seconds", "nan"], "nan is not a finite number of seconds"),
        (["sandbox", "serve", "--host", "0.0.0.0"], "give a --token-file, or bind to a loopback"),
        (["sandbox", "serve", "--env", "x"], "cleaner-sandbox env build x requirements.txt"),
        (["sandbox", "env", "build", "x"], "needs a requirements file, a base or both"),
        (["sandbox", "env", "remove", "x"], "see cleaner-sandbox env list"),
        (["sandbox", "check", "--only", "nothing"], "across, alarm, "),
        (["sandbox", "check", "--sandbox", NOWHERE], "cleaner-sandbox serve"),
        (["view", "--demo", "--port", "70000"], "70000 is not in the range"),
        (["view", "--demo", "--export", "no/page.html"], "folder"),
        (["view", "broken.jsonl", "--export", "page.html"], "broken.jsonl"),
        (["purify", "broken.jsonl", "--out", "out"], "JSON"),
        (["purify", "nothing.json", "--out", "out"], "--from"),
        (["purify", "nowhere", "--out", "out"], "nowhere"),
        (["purify", "broken.jsonl", "--out", "out", "--threshold", "7"], "7.0 is not in the range"),
        (["purify", "broken.jsonl", "--out", "out", "--jobs", "0"], "0 is not in the range"),
        (["purify", "tasks.jsonl", "--from", "openai", "--out", "out", "--roc", "1"], "1 is not in the range x>=2"),
        (["purify", "tasks.jsonl", "--from", "openai", "--out", "broken.yaml"], "a file has this name: choose another"),
        (["purify", "tasks.jsonl", "--from", "openai", "--out", "broken.yaml/out"], "a file is in the way"),
        (["purify", "log.jsonl", "--out", "out", "--no-replay", "--only-proven"], "leave out --no-replay"),
        (["verify", "broken.jsonl", "--calls", "nope"], "is not one of"),
        (["verify", "broken.jsonl", "--sandbox", NOWHERE], "cleaner-sandbox serve"),
        (["train", "broken.yaml", "--dry-run"], "YAML"),
        (["train", "recipe.yaml", "--dry-run"], "NO_SUCH_VARIABLE"),
        (["compare", "nothing.json", "nothing.json"], "`cleaner eval`"),
        ([*ROLLOUT, "--url", NOWHERE, "--out", "out", "--samples", "-3"], "-3 is not in the range"),
        ([*ROLLOUT, "--url", "nonsense", "--out", "out", "--retries", "0"], "http://"),
        ([*ROLLOUT, "--url", NOWHERE, "--out", "out", "--patience", "0", "--retries", "0"], "fault"),
        ([*ROLLOUT, "--url", NOWHERE, "--out", "/proc/out"], "folder"),
        (["eval", "--tasks", "nope", "--model", "m"], "aime24"),
        (["doctor", "--prompt", "nope"], "fenced, "),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code in (1, 2)
    assert isinstance(ran.exception, SystemExit), repr(ran.exception)
    assert said in " ".join(ran.output.split())
    assert "Traceback" not in ran.output


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = CliRunner().invoke(main, ["sandbox", "serve", "--port", str(port)])
    assert ran.exit_code == 1
    assert f"127.0.0.1:{port}" in ran.output
    assert "Address already in use" in ran.output
    assert "--port" in ran.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor"], "no luck"),
        (["demo", "--no-open"], "no luck"),
        (["purify", "log.jsonl", "--out", "out", "--replay"], "give the address of a node elsewhere"),
        ([*ROLLOUT, "--url", NOWHERE, "--out", "out"], "give the address of a node elsewhere"),
    ],
)
def test_a_sandbox_that_does_not_start_is_no_traceback(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_: Zygote) -> None:
        raise ZygoteError("no luck")

    monkeypatch.setattr(Zygote, "start", start)
    Path("log.jsonl").write_text(json.dumps(openai(CASES[0])) + "\n")  # it has a repair to replay
    ran = CliRunner().invoke(main, arguments)
    assert ran.exception is None or isinstance(ran.exception, SystemExit), repr(ran.exception)
    assert said in " ".join(ran.output.split())


def test_a_comparison_whose_plots_need_an_extra_names_it() -> None:
    ran = cleaner(
        "compare", str(DEMO / "grpo.json"), str(DEMO / "saar-roc.json"), "--out", "out", missing=("matplotlib",)
    )
    assert ran.returncode == 1
    assert "matplotlib" in ran.stderr
    assert ran.stderr.endswith("pip install 'cleaner-rl[eval]'\n")


@pytest.mark.parametrize(
    ("command", "extras"),
    [("rollout", "eval,rollout,sandbox"), ("eval", "eval,rollout,sandbox"), ("train", "verl")],
)
def test_a_command_whose_extra_is_missing_names_it(command: str, extras: str) -> None:
    ran = cleaner(command, "--help", missing=("msgspec", "aiohttp"))
    assert ran.returncode == 1
    assert f"`cleaner {command}`" in ran.stderr
    assert ran.stderr.endswith(f"pip install 'cleaner-rl[{extras}]'\n")


@pytest.mark.parametrize("arguments", [["serve", "--port", "0"], ["check", "--sandbox", NOWHERE]])
def test_a_sandbox_command_whose_extra_is_missing_names_it(arguments: list[str]) -> None:
    ran = cleaner("sandbox", *arguments, missing=("msgspec", "aiohttp"))
    assert ran.returncode == 1
    assert "pip install 'cleaner-sandbox[http]'" in ran.stderr
