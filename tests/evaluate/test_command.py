"""`cleaner eval` from the command line. A stand-in for vLLM (its token route) serves the model; the rest is real."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from click import ClickException, Context
from click.testing import CliRunner, Result

from cleaner_rl.cli import main
from cleaner_rl.cli.eval_run import settings_of_run
from cleaner_rl.evaluate import Repair, compare, read_results
from cleaner_rl.evaluate.report import write_report
from cleaner_rl.tasks import load_prompt, write_verl
from cleaner_rl.train import to_recipe
from cleaner_rl.train.verl.plan import RunPlan
from cleaner_rl.trajectory.store import read
from tests.evaluate.builders import evaluation
from tests.evaluate.standins import RIGHT, WRONG, Rule, mends, tasks
from tests.rollout.chats import chat, tokenizer
from tests.rollout.scripted import call


class StandIn:
    """A stand-in for a vLLM server: ids in, ids out, what it writes is a rule's."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.requests = rule, 0
        self.url = ""

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stand-in", "max_model_len": 20_000}]})

    async def generate(self, request: web.Request) -> web.Response:
        self.requests += 1
        asked = await request.json()
        settings = asked["sampling_params"]
        context = chat().vocabulary.decode(asked["token_ids"]).text
        ids = [*tokenizer("qwen3").encode(self.rule(context, settings["seed"])), settings["stop_token_ids"][0]]
        ids = ids[: settings["max_tokens"]]
        logprobs = {"content": [{"token": "", "logprob": -1.0} for _ in ids]}
        reason = "stop" if ids[-1] == settings["stop_token_ids"][0] else "length"
        choice = {"token_ids": ids, "finish_reason": reason, "logprobs": logprobs}
        return web.json_response({"choices": [choice], "usage": {}})


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """Serves in a thread of its own, because the command has the main one."""
    import asyncio

    server = StandIn(mends)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def serve() -> web.AppRunner:
        app = web.Application(client_max_size=2**24)
        app.add_routes([web.get("/v1/models", server.models), web.post("/inference/v1/generate", server.generate)])
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        server.url = f"http://127.0.0.1:{port}"
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "a-model"
    tokenizer("qwen3").save_pretrained(folder)
    return folder


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks(4)))
    return file


def judge(url: str, model: Path, problems: Path, out: Path, *more: str, recovery: str | None = "0") -> Result:
    options = [
        "--patience",
        "1",
        "--samples",
        "2",
        "--turns",
        "5",
        "--tokens",
        "4000",
        "--tool-seconds",
        "1",
    ]
    where = ["--url", url, "--model", str(model), "--tasks", str(problems), "--out", str(out)]
    failures = [] if recovery is None else ["--recovery", recovery]
    return CliRunner().invoke(main, ["eval", *where, *options, *failures, *more])


def test_a_model_is_judged_and_a_second_run_asks_for_nothing(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shown = judge(stand_in.url, model, problems, out)
    assert shown.exit_code == 0, shown.output
    assert "| mine | 4 | 2 | 100.0 [" in shown.output
    assert "repair off" in shown.output.lower()
    (found,) = read_results(out).sets
    assert found.runs[Repair.ON].figures["errors_residual"].value == 0.0
    assert found.runs[Repair.OFF].figures["errors_residual"].value == 1.0
    assert {"report.html", "report.md", "results.json", "trajectories"} <= {file.name for file in out.iterdir()}
    assert len(list(read(out / "trajectories"))) == 16
    asked = stand_in.requests
    again = judge(stand_in.url, model, problems, out, "--json")
    assert again.exit_code == 0, again.output
    assert stand_in.requests == asked
    printed = json.loads(again.stdout)
    assert printed["sets"][0]["runs"]["off"]["figures"]["pass@1"]["value"] == 1.0
    assert printed["settings"]["temperature"] == 1.0


def test_another_repair_leaves_what_ran_without_it_in_place(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off")
    before = stand_in.requests
    judge(stand_in.url, model, problems, tmp_path / "out", "--attempts", "1")
    only_on = stand_in.requests - before
    assert only_on > 0
    runs = [each.key.run[:2] for each in read(tmp_path / "out" / "trajectories")]
    assert (runs.count("of"), runs.count("on")) == (8, 8)


def test_other_sampling_is_another_run(stand_in: StandIn, model: Path, problems: Path, tmp_path: Path) -> None:
    stand_in.rule = lambda context, seed: RIGHT
    for top_p in ("0.6", "1.0"):
        judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off", "--top-p", top_p)
    assert stand_in.requests == 16


def test_another_window_or_version_is_another_run(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.rule = lambda context, seed: RIGHT
    judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off")
    judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off", "--window", "20000")
    assert stand_in.requests == 8, "it is the window that the server names"
    judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off", "--window", "9000")
    assert stand_in.requests == 16
    monkeypatch.setattr("cleaner_rl.evaluate.run.__version__", "99.0")
    judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off", "--window", "9000")
    assert stand_in.requests == 24


def test_two_evaluations_differ_in_window_samples_and_failures_for_all_to_see(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    others = ["--window", "9000", "--samples", "1"]
    judge(stand_in.url, model, problems, tmp_path / "a", "--repair", "off")
    judge(stand_in.url, model, problems, tmp_path / "b", "--repair", "off", *others, recovery="1")
    notes = compare(read_results(tmp_path / "a"), read_results(tmp_path / "b")).notes
    assert set(notes) == {"window differs: 20000 and 9000", "samples differs: 2 and 1", "recovery differs: 0 and 1"}


def test_recovery_is_in_the_report(stand_in: StandIn, model: Path, problems: Path, tmp_path: Path) -> None:
    shown = judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off", recovery="2")
    assert shown.exit_code == 0, shown.output
    found = read_results(tmp_path / "out").recovery
    assert found is not None
    assert sum(rate.judged for rate in found.overall.problems.values()) == 8
    assert "Recovery" in (tmp_path / "out" / "report.html").read_text()


def test_without_a_python_tool_no_failures_are_put_in_and_asking_for_them_is_refused(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    stand_in.rule = lambda context, seed: RIGHT
    no_tool = ["--prompt", "no-tool", "--repair", "off"]
    shown = judge(stand_in.url, model, problems, tmp_path / "out", *no_tool, recovery=None)
    assert shown.exit_code == 0, shown.output
    assert "'no-tool'" in shown.stderr
    found = read_results(tmp_path / "out")
    assert (found.recovery, found.settings["recovery"]) == (None, 0)
    asked = stand_in.requests
    for prompt in ("no-tool", "sql"):
        shown = judge(stand_in.url, model, problems, tmp_path / "out", "--prompt", prompt, recovery="2")
        assert shown.exit_code == 1
        assert "--recovery 2" in shown.output
        assert f"'{prompt}'" in shown.output
    assert stand_in.requests == asked


def test_what_is_missing_is_said_with_what_to_do(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    shown = judge("http://127.0.0.1:9", model, problems, tmp_path / "out")
    assert shown.exit_code == 1
    assert "no engine answers" in shown.output
    shown = judge("http://127.0.0.1:9", model, tmp_path / "nowhere.jsonl", tmp_path / "out")
    assert "no file" in shown.output
    shown = judge(stand_in.url, tmp_path / "no-model", problems, tmp_path / "out")
    assert shown.exit_code == 1
    assert "tokenizer" in shown.output


def test_faults_are_told_of(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleaner_rl.rollout.runner.PAUSE", 0.0)

    def refuses_3(context: str, seed: int) -> str:
        if "How many are 3 and" in context:
            raise web.HTTPBadRequest(text="not this one")
        return RIGHT

    stand_in.rule = refuses_3
    shown = judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off")
    assert shown.exit_code == 0, shown.output
    assert "| mine | 3 of 4 | 2 | 100.0 [" in shown.output
    assert "| 75.0 to 100.0 |" in shown.output
    assert "not this one" in shown.output
    problems.write_text(problems.read_text().splitlines()[-1])
    shown = judge(stand_in.url, model, problems, tmp_path / "out", "--repair", "off")
    assert shown.exit_code == 1
    assert "not this one" in shown.stderr


def test_a_truth_that_no_grader_can_use_is_refused_before_the_model_is_asked(
    stand_in: StandIn, model: Path, problems: Path, tmp_path: Path
) -> None:
    problems.write_text(problems.read_text().replace('"truth": "C"', '"truth": "?"'))
    shown = judge(stand_in.url, model, problems, tmp_path / "out")
    assert shown.exit_code == 1
    assert "4 tasks can't be graded" in shown.output
    assert not stand_in.requests


def test_two_sets_of_one_name_are_refused(model: Path, problems: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / problems.name
    other.parent.mkdir()
    other.write_text(problems.read_text().replace("set/", "other/"))
    shown = judge("http://127.0.0.1:9", model, problems, tmp_path / "out", "--tasks", str(other))
    assert shown.exit_code == 1
    assert "'mine'" in shown.output
    assert "rename" in shown.output


def test_a_folder_with_another_models_results_is_refused_before_anything_runs(
    problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "evals" / "huggingface"
    write_report(replace(evaluation(("aime24",)), model="step-100/actor/huggingface"), out)
    before = (out / "results.json").read_bytes()
    where = ["--url", "http://127.0.0.1:9", "--patience", "1", "--tasks", str(problems)]
    shown = CliRunner().invoke(main, ["eval", "--model", "step-200/actor/huggingface", *where])
    assert shown.exit_code == 1
    assert "step-100/actor/huggingface" in shown.output
    assert "--out" in shown.output
    assert "--name" in shown.output
    assert (out / "results.json").read_bytes() == before
    shown = CliRunner().invoke(main, ["eval", "--model", "step-100/actor/huggingface", *where])
    assert "no engine answers" in shown.output, "its own results are replaced"


def test_a_runs_checkpoint_is_judged_in_the_sandbox_that_it_was_trained_in(
    stand_in: StandIn, problems: Path, tmp_path: Path
) -> None:
    """62.5 % in training, and 0 % where each call has less memory than in training."""
    held_out = tmp_path / "held-out.parquet"
    write_verl(held_out, tasks(8), load_prompt("stateless"), "cleaner")
    folder = tmp_path / "runs" / "mine"
    recipe = to_recipe(
        {
            "name": "mine",
            "method": "grpo",
            "model": {"path": "some/model"},
            "tasks": {"train": [str(held_out)], "held_out": [str(held_out)]},
            "budget": {"prompt_tokens": 500, "response_tokens": 4_000, "turns": 5, "overlong_buffer": 0},
            "sandbox": {"slots": 2, "cpu_seconds": 5, "memory_mb": 1_024},
        }
    )
    RunPlan(recipe, (), folder).write()
    checkpoint = folder / "checkpoints" / "global_step_3" / "actor" / "huggingface"
    tokenizer("qwen3").save_pretrained(checkpoint)
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")

    def large(context: str, seed: int) -> str:
        asked = context.rpartition("How many are ")[2]
        if "<tool_response>" not in asked:
            return call("print(len(bytearray(700 << 20)))")
        return RIGHT if str(700 << 20) in asked and int(asked.split()[0]) < 5 else WRONG

    stand_in.rule = large
    options = ["--url", stand_in.url, "--samples", "1", "--repair", "off", "--recovery", "0", "--patience", "5"]

    def judged(*more: str) -> tuple[Result, float | None]:
        out = tmp_path / f"out{len(more)}"
        shown = CliRunner().invoke(main, ["eval", *more, "--out", str(out), *options])
        assert shown.exit_code == 0, shown.output
        return shown, read_results(out).sets[0].runs[Repair.OFF].figures["pass@1"].value

    of_run, right = judged("--run", str(folder))
    assert right == 0.625
    assert "warning" not in of_run.output
    alone, wrong = judged("--model", str(checkpoint), "--tasks", str(held_out), "--tool-seconds", "5")
    assert wrong == 0.0
    assert "warning: 8 of 8 calls failed; the most frequent errors: MemoryError (8)" in alone.output
    notes = compare(read_results(tmp_path / "out2"), read_results(tmp_path / "out6")).notes
    assert any(note == "memory_mb differs: 1024 and 512" for note in notes)

    missing = CliRunner().invoke(main, ["eval", "--run", str(folder), "--step", "4", *options])
    assert missing.exit_code == 1
    assert "steps [3] (--step)" in missing.output
    assert "Missing option '--model'" in CliRunner().invoke(main, ["eval", *options]).output


def test_a_runs_sandbox_is_sent_the_runs_token_and_no_other_is(problems: Path, tmp_path: Path) -> None:
    token, node = tmp_path / "token", "http://nodes:8089"
    token.write_text("secret\n")
    folder = tmp_path / "runs" / "mine"
    recipe = to_recipe(
        {
            "name": "mine",
            "method": "grpo",
            "model": {"path": "some/model"},
            "tasks": {"train": [str(problems)], "held_out": [str(problems)]},
            "sandbox": {"addresses": [node], "token_file": str(token)},
        }
    )
    RunPlan(recipe, (), folder).write()
    (folder / "checkpoints" / "global_step_3" / "actor" / "huggingface").mkdir(parents=True)
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")

    def taken(*more: str) -> tuple[object, object]:
        command = main.get_command(Context(main), "eval")
        assert command is not None
        context = command.make_context("eval", ["--run", str(folder), *more])
        settings_of_run(context, context.params)
        return list(context.params["sandbox"]), context.params["sandbox_token"]

    assert taken() == ([node], "secret")
    assert taken("--sandbox", "http://mine:1") == (["http://mine:1"], None)
    assert taken("--sandbox-token", "other") == ([node], "other")
    token.write_text("two words")
    assert taken("--sandbox-token", "other") == ([node], "other")
    with pytest.raises(ClickException, match="must hold one token"):
        taken()
