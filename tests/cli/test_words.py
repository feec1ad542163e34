"""What commands print of names that others chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.cli.words import visible
from tests.logs.cases import CASES
from tests.logs.rendering import openai

NAME = "\x1b]0;mine\x07\x9b2J\u202e\r.jsonl"
SEEN = r"\x1b]0;mine\x07\x9b2J\u202e\r.jsonl"


def test_text_keeps_its_lines_and_letters_and_shows_its_control_characters() -> None:
    assert visible(f"a\tb\n{NAME}\x00\x7f\ud800\u2028") == f"a\tb\n{SEEN}" + r"\x00\x7f\ud800\u2028"
    kept = "é → 漢字 🙂 12\N{NO-BREAK SPACE}%\\"
    assert visible(kept) == kept


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["purify", "logs", "--out", "out"], 0),
        (["purify", f"logs/{NAME}", "--out", "out"], 1),
        (["view", f"logs/{NAME}", "--export", "page.html"], 1),
        (["verify", f"logs/{NAME}"], 1),
    ],
)
def test_finding_names_of_files_are_no_commands_to_the_terminal(
    command: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = Path("logs")
    logs.mkdir()
    (logs / "good.jsonl").write_text(json.dumps(openai(CASES[0])) + "\n")
    (logs / NAME).write_text("{}\n")
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == status
    assert SEEN in ran.output
    assert not set(ran.output) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
