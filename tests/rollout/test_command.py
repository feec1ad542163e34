"""`cleaner rollout` as a user runs it: real processes, a real sandbox, and a stand-in for an engine and its model.

The same with a real vLLM is in `tests/engine/rollout`.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.serving import free_port
from cleaner_rl.cli import main
from cleaner_rl.rollout.journal import Journal
from cleaner_rl.trajectory import Key, StopReason, TextSpan, TokenSpan, Trajectory, residual_tally
from cleaner_rl.trajectory.store import read
from cleaner_rl.trajectory.store.files import BusyError
from tests.rollout.chats import tokenizer
from tests.rollout.processes import CLI, fake_engine, kill, sandbox_node, started, write_tasks

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer("qwen3").save_pretrained(folder)
    return folder


def arguments(model: Path, tasks: Path, output: Path, urls: list[str], *more: Any) -> list[str]:
    named: list[Any] = ["rollout", "--tasks", tasks, "--model", model, "--out", output, "--json"]
    for url in urls:
        named += ["--url", url]
    return [*map(str, named), *map(str, more)]


def completed(model: Path, tasks: Path, output: Path, urls: list[str], *more: Any) -> dict[str, Any]:
    ran = CliRunner().invoke(main, arguments(model, tasks, output, urls, *more))
    assert ran.exit_code == 0, ran.output
    summary: dict[str, Any] = json.loads(ran.stdout)
    return summary


def assert_whole(output: Path, count: int, samples: int = 1) -> list[Trajectory[TokenSpan]]:
    """Every rollout once, none of them a fault, none wrong that isn't the model's own doing."""
    stored: list[Any] = list(read(output / "trajectories"))
    wanted = {Key("rollout", 0, f"made/{task}", number) for task in range(count) for number in range(samples)}
    assert Counter(each.key for each in stored) == Counter(wanted)
    assert {each.stop_reason for each in stored} == {StopReason.ANSWERED}
    assert all(each.success for each in stored)
    return stored


def test_tasks_become_trajectories_with_and_without_repair(model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 12)
    with fake_engine(tmp_path, model) as (url, _, _):
        off = completed(model, tasks, tmp_path / "off", [url], "--repair", "off", "--samples", 2)
        on = completed(model, tasks, tmp_path / "on", [url], "--samples", 2, "--repair", "saar")
        later = completed(model, tasks, tmp_path / "later", [url], "--samples", 2, "--repair", "hindsight")
    assert off["errors_per_trajectory"] > 0
    assert on["errors_per_trajectory"] < off["errors_per_trajectory"] / 2
    assert on["first_attempt_errors_per_trajectory"] > 0
    assert on["grafts"] > 0
    assert later["errors_per_trajectory"] < off["errors_per_trajectory"] / 2
    for name in ("off", "on", "later"):
        for trajectory in assert_whole(tmp_path / name, 12, 2):
            known = trajectory.logprobs()[trajectory.loss_mask()]
            assert not (known != known).any(), "every sampled token has a log-prob where it stands"
        assert (tmp_path / name / "tokenizer.json").is_file()
    stored = assert_whole(tmp_path / "on", 12, 2)
    assert sum(residual_tally(each).failed for each in stored) == on["errors_per_trajectory"] * 24


def test_a_finished_run_is_not_done_again_and_other_settings_are_refused(model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 3)
    with fake_engine(tmp_path, model) as (url, _, record):
        first = completed(model, tasks, tmp_path / "run", [url])
        asked = record.read_text()
        again = completed(model, tasks, tmp_path / "run", [url])
        assert record.read_text() == asked
        assert (first["done_now"], again["done_now"], again["rollouts"]) == (3, 0, 3)
        refused = CliRunner().invoke(main, arguments(model, tasks, tmp_path / "run", [url], "--tokens", 100))
        assert refused.exit_code == 1
        assert "tokens was 16384, is 100" in refused.output
        more = CliRunner().invoke(main, arguments(model, tasks, tmp_path / "other", [url], "--temperature", 0.7))
        assert more.exit_code == 1
        assert "re-scoring" in more.output


def test_going_on_looks_at_each_rollout_of_the_store_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 40)
    with fake_engine(tmp_path, model) as (url, _, _):
        completed(model, tasks, tmp_path / "run", [url])
        hashed = 0
        plain = Key.__hash__

        def counting(key: Key) -> int:
            nonlocal hashed
            hashed += 1
            return plain(key)

        monkeypatch.setattr(Key, "__hash__", counting)
        again = completed(model, tasks, tmp_path / "run", [url])
    assert (again["done_now"], again["rollouts"]) == (0, 40)
    assert hashed < 40 * 40


def test_errors_say_what_to_do(model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 1)
    nowhere = CliRunner().invoke(
        main, arguments(model, tasks, tmp_path / "a", ["http://127.0.0.1:9"], "--patience", 0.5)
    )
    assert nowhere.exit_code == 1
    assert "no engine answers" in nowhere.output
    with fake_engine(tmp_path, model) as (url, _, _):
        unknown = CliRunner().invoke(main, arguments(tmp_path / "no-model", tasks, tmp_path / "b", [url]))
        assert unknown.exit_code == 1
        assert "no-model" in unknown.output


def test_a_killed_run_goes_on_with_no_task_lost_or_done_twice(model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 150)
    output = tmp_path / "run"
    draw = random.Random(5)
    kills = 0
    with fake_engine(tmp_path, model, 0.05) as (url, _, _), sandbox_node(tmp_path) as (node, _):
        command = arguments(model, tasks, output, [url], "--sandbox", node, "--concurrency", 4)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            with started(*CLI, *command, log=tmp_path / "run.log") as process:
                try:
                    assert process.wait(None if kills >= 3 else 4 + 5 * draw.random()) == 0
                    break
                except subprocess.TimeoutExpired:
                    kill(process)
                    kills += 1
        assert kills >= 1
    assert_whole(output, 150)


@pytest.mark.parametrize("prompt", ["stateless", "session"])
def test_an_engine_and_a_node_may_be_killed_while_others_stand(prompt: str, model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 60)
    output = tmp_path / "run"
    with (
        fake_engine(tmp_path, model, 0.05) as (one, engine, record),
        fake_engine(tmp_path, model, 0.05) as (two, _, other),
        sandbox_node(tmp_path) as (near, node),
        sandbox_node(tmp_path) as (far, _),
    ):
        command = arguments(
            model, tasks, output, [one, two], "--sandbox", near, "--sandbox", far, "--concurrency", 6, "--patience", 60
        )
        command += ["--prompt", prompt]
        with started(*CLI, *command, log=tmp_path / "run.log") as process:
            _await_lines(record, 20)
            kill(engine)
            _await_lines(other, 60)
            kill(node)
            assert process.wait(200) == 0, (tmp_path / "run.log").read_text()
    assert_whole(output, 60)


def test_an_engine_that_comes_back_is_waited_for(model: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", 30)
    output = tmp_path / "run"
    port = free_port()
    with sandbox_node(tmp_path) as (node, _):
        command = arguments(model, tasks, output, [f"http://127.0.0.1:{port}"], "--sandbox", node, "--concurrency", 4)
        with (
            fake_engine(tmp_path, model, 0.05, port) as (_, engine, record),
            started(*CLI, *command, log=tmp_path / "run.log") as process,
        ):
            _await_lines(record, 20)
            kill(engine)
            with fake_engine(tmp_path, model, 0.05, port):
                assert process.wait(200) == 0, (tmp_path / "run.log").read_text()
    assert_whole(output, 30)


def test_faults_that_stay_are_recorded_as_faults(model: Path, tmp_path: Path) -> None:
    """The sandbox is away and does not come back: nobody failed."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", 3)
    with fake_engine(tmp_path, model) as (url, _, _):
        away = ["--sandbox", "http://127.0.0.1:9", "--patience", 0.5, "--retries", 1]
        shown = CliRunner().invoke(main, arguments(model, tasks, tmp_path / "run", [url], *away))
    assert shown.exit_code == 1, "nothing came of it, and a script should know"
    assert "fault" in shown.output
    summary = json.loads(shown.stdout)
    assert summary["stop_reasons"] == {"fault": 3}
    assert summary["graded"] == 0
    assert summary["accuracy"] is None
    stored = list(read(tmp_path / "run" / "trajectories"))
    assert all(each.success is None and each.reward is None and not each.usable for each in stored)


def test_one_process_writes_a_journal_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        with pytest.raises(BusyError), Journal(tmp_path):
            pass
        journal.add(Trajectory(TextSpan("a"), key=Key("r", 0, "t", 1)))
        with pytest.raises(ValueError, match="already"):
            journal.add(Trajectory(TextSpan("a"), key=Key("r", 0, "t", 1)))
    with Journal(tmp_path) as journal:
        assert journal.done == {Key("r", 0, "t", 1)}


def _await_lines(file: Path, count: int) -> None:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if file.exists() and len(file.read_text().splitlines()) >= count:
            return
        time.sleep(0.02)
