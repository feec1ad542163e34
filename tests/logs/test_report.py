"""The summary of `cleaner purify`: what it says by tool, which repairs it shows, and what it says of files."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.logs import LogSettings, PurifyResult, PurifySummary, SftKind, preview, purify
from cleaner_rl.logs.examples import EditExample
from cleaner_rl.logs.reasons import REASONS
from cleaner_rl.logs.report import VERDICTS
from cleaner_rl.logs.summary import total
from cleaner_rl.logs.warrant import Unwarranted
from cleaner_rl.purify import Reason, ReplayVerdict
from tests.logs.cases import UNREAD, Call, Case, Step, py
from tests.logs.rendering import openai


def shell(command: str, text: str) -> Call:
    return Call("bash", {"command": command}, text)


TYPO = (
    Step("I look.", (shell("gti status --short", "bash: gti: command not found"),)),
    Step("I meant status.", (shell("git status --short", " M a.py"),)),
)
TESTS = (Step("I test.", (shell("pytest -q", "1 failed, 3 passed in 0.1s"),), then="Leave it."),)
IMPORT = (
    Step("I count.", (py("print(sum([4, 5])", UNREAD),)),
    Step("I import.", (py("print(sum([4, 5]))", "9"),)),
)
SILENT = (Step("I set.", (py("x = 1", ""),)),)
TALK = (Step("Nothing to do."),)


def written(path: Path, *cases: tuple[Step, ...]) -> Path:
    records = [{**openai(Case("", steps, ())), "id": f"record-{number}"} for number, steps in enumerate(cases)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def result(tmp_path: Path) -> PurifyResult:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs/a.jsonl", TYPO, TESTS, IMPORT, SILENT, TALK)
    for number in range(7):
        (tmp_path / f"logs/note-{number}.txt").write_text("hello\n")
    return purify(tmp_path / "logs", tmp_path / "out")


def test_calls_are_counted_by_tool(result: PurifyResult) -> None:
    found = result.to_json()["tools"]
    assert found == {
        "python": {"calls": 3, "failed": 1, "repaired": 1, "unsure": 1, "no_result": 0, "left_alone": {}},
        "shell": {
            "calls": 3,
            "failed": 2,
            "repaired": 1,
            "unsure": 0,
            "no_result": 0,
            "left_alone": {"uncorrected": 1},
        },
    }
    for line in (
        "tool           calls      failed    repaired  left alone      unsure   no result",
        "python             3           1           1           0           1           0",
        "shell              3           2           1           1           0           0",
        "  shell         1  uncorrected: no working call",
        "no call      1 trajectory without any",
    ):
        assert line in result.as_text()


def test_repairs_are_shown_as_examples(result: PurifyResult, tmp_path: Path) -> None:
    log = f"{tmp_path}/logs/a.jsonl"
    python, command = result.summary.examples
    error, before, after = "SyntaxError: invalid syntax", ("print(sum([4, 5])",), ("print(sum([4, 5]))",)
    assert python == EditExample("python", log, 3, "record-2", "graft", before, error, after)
    assert (command.before, command.after) == (("gti status --short",), ("git status --short",))
    assert f"""\
  shell, {log}:1
    - gti status --short
      (bash: gti: command not found)
    + git status --short
""" in result.as_text()


def test_every_skipped_file_is_listed_with_its_reason(result: PurifyResult) -> None:
    assert len(result.skipped) == 7
    for number in range(7):
        assert f"note-{number}.txt is neither JSONL, JSON, Parquet nor a zip" in result.as_text()


def test_files_are_counted_by_format(result: PurifyResult) -> None:
    assert result.as_text().startswith("read         1 file: 1 openai (5 records)\n")
    (file,) = result.to_json()["files"]
    assert (Path(file["path"]).name, file["format"], file["size"] > 0) == ("a.jsonl", "openai", True)


def test_repairs_of_python_that_nobody_ran_are_named(result: PurifyResult) -> None:
    assert "not replayed 1 repaired call of Python: nothing was run" in result.as_text()


def test_a_summary_is_the_same_whichever_unit_is_done_first(tmp_path: Path) -> None:
    parts = []
    for number in range(4):
        log = written(tmp_path / f"{number}.jsonl", TYPO, IMPORT, TYPO)
        parts.append(purify(log, tmp_path / f"out-{number}").summary)
    wanted = total(parts)
    assert len(wanted.examples) == 6, "three of each tool"
    assert [Path(each.file).name for each in wanted.examples[:3]] == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert all(total(order) == wanted for order in permutations(parts))
    assert PurifySummary.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


def test_what_a_log_holds_cannot_command_the_terminal(tmp_path: Path) -> None:
    error = UNREAD + " \x1b[2J"
    hostile = (
        Step("I count.", (py("print(len('a')  # \x1b]0;owned\x07", error),)),
        Step("I close it.", (py("print(len('a'))  # \x1b]0;owned\x07 \u202e", "1"),)),
    )
    log = written(tmp_path / "a.jsonl", hostile)
    text = purify(log, tmp_path / "out", LogSettings()).as_text()
    assert "- print(len('a')" in text
    assert not [each for each in text if not each.isprintable() and each != "\n"]


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", TYPO, TESTS, IMPORT, SILENT, TALK)
    settings = LogSettings(sft=SftKind.JSONL, same=True)
    seen = preview(log, settings)
    assert list(tmp_path.iterdir()) == [log]
    assert seen.summary == purify(log, tmp_path / "out", settings).summary
    ran = CliRunner().invoke(main, ["purify", str(log), "--dry-run", "--sft", "jsonl"], catch_exceptions=False)
    assert ran.stdout == seen.as_text() + "\n"
    assert not ran.stderr, "it runs no code"
    assert f"  openai          {log.stat().st_size:>14,} bytes  {log}\n" in ran.stdout
    for words in ("2 of them repaired; nothing is written", "- gti status --short", "SFT rows     3"):
        assert words in ran.stdout


def test_without_a_dry_run_there_must_be_a_folder(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["purify", str(written(tmp_path / "a.jsonl", TYPO))])
    assert (ran.exit_code, "--out" in ran.output, "--dry-run" in ran.output) == (2, True, True)


def test_every_reason_and_every_verdict_has_words() -> None:
    assert REASONS.keys() == {*Reason, *Unwarranted}
    assert VERDICTS.keys() == {*map(str, ReplayVerdict), "undone"}
