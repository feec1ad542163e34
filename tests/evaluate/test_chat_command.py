"""`cleaner eval` on a chat API: its options reach the server, and servers that cheat get their honest share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cleaner_rl.cli import main
from cleaner_rl.evaluate import Repair, read_results
from cleaner_rl.evaluate.results import RunScore
from cleaner_rl.tasks import Message, Task
from tests.evaluate.chat_server import Says, chat_server, said

PROBLEMS = [Task(f"sums/{n}", (Message("user", f"What is {n} + {7 - n}?"),), "math", "7") for n in range(4)]
BOMB = "It is \\boxed{9^{9^{9}}}."
CUT_OFF = "<think>Maybe \\boxed{7}? Let me see. I think that this is wrong, because"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps(task.to_json()) + "\n" for task in PROBLEMS))
    return file


def judged(says: Says, problems: Path, out: Path, *more: str) -> tuple[Result, list[dict[str, Any]]]:
    with chat_server(says) as server:
        where = ["--url", server.url, "--engine", "chat", "--model", "a-model", "--tasks", str(problems)]
        options = ["--prompt", "no-tool", "--repair", "off", "--samples", "4", "--patience", "5", "--out", str(out)]
        shown = CliRunner().invoke(main, ["eval", *where, *options, *more])
    assert shown.exit_code == 0, shown.output
    return shown, server.bodies


def scored(out: Path) -> RunScore:
    (found,) = read_results(out).sets
    return found.runs[Repair.OFF]


def test_the_prompt_without_a_tool_the_limit_top_k_and_template_reach_the_server(
    problems: Path, tmp_path: Path
) -> None:
    more = ["--limit", "2", "--top-k", "20", "--template", "enable_thinking=false", "--template", "style=short"]
    shown, bodies = judged(lambda *_: said("It is \\boxed{7}."), problems, tmp_path / "out", *more)
    assert len(bodies) == 2 * 4
    assert all("tools" not in body for body in bodies)
    assert {body["top_k"] for body in bodies} == {20}
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False, "style": "short"}
    assert "| sums | 2 | 4 | 100.0 [" in shown.output
    found = read_results(tmp_path / "out")
    assert (found.settings["limit"], found.settings["template"]) == (2, {"enable_thinking": False, "style": "short"})
    assert scored(tmp_path / "out").figures["maj@4"].value == 1.0
    assert "eval: 8 of 8" in shown.stderr, "progress is in the log too"


def test_what_is_no_argument_of_a_template_is_refused(problems: Path, tmp_path: Path) -> None:
    where = ["--model", "m", "--tasks", str(problems), "--out", str(tmp_path / "out"), "--template", "thinking"]
    shown = CliRunner().invoke(main, ["eval", *where])
    assert shown.exit_code == 2
    assert "KEY=VALUE" in shown.output


def test_an_answer_that_no_verifier_can_finish_counts_as_wrong(problems: Path, tmp_path: Path) -> None:
    """It would be a better score without a better answer, if it were a fault and drawn again."""

    def half(number: int, _body: dict[str, Any]) -> dict[str, Any]:
        return said("It is \\boxed{7}." if number % 2 else BOMB)

    _, bodies = judged(half, problems, tmp_path / "out", "--concurrency", "1", "--limit", "1")
    assert len(bodies) == 4, "nothing that is complete is sampled again"
    run = scored(tmp_path / "out")
    assert run.figures["pass@1"].value == 0.5
    assert (run.faults, run.bounds) == ({}, None)


def test_thinking_that_was_cut_off_is_no_answer(problems: Path, tmp_path: Path) -> None:
    judged(lambda *_: said(CUT_OFF, "length"), problems, tmp_path / "out")
    run = scored(tmp_path / "out")
    assert run.figures["pass@1"].value == 0.0
    assert run.stop_reasons == {"token_limit": 16}
