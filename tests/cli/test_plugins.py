from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from tests.plugins import install


def listed() -> tuple[int, dict[tuple[str, str], str]]:
    ran = CliRunner().invoke(main, ["plugins", "--json"])
    found = json.loads(ran.output)["plugins"]
    return ran.exit_code, {(each["package"], each["name"]): each["problem"] for each in found}


def test_ours_are_listed_and_whole() -> None:
    code, found = listed()
    assert code == 0
    assert set(found.values()) == {""}
    assert {("cleaner-rl", name) for name in ("hermes", "math", "openai", "session")} <= set(found)
    assert "cleaner_rl.graders\n  choice " in CliRunner().invoke(main, ["plugins"]).output


def test_one_that_is_broken_is_listed_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"cleaner_rl.graders": {"gone": "no_such_module:Grader", "math": "json:loads"}}
    install(tmp_path, "others", groups, {}, monkeypatch)
    code, found = listed()
    assert code == 1
    assert "No module named 'no_such_module'" in found["others", "gone"]
    assert "taken" in found["others", "math"]
    assert "others · the grader 'gone' of others" in CliRunner().invoke(main, ["plugins"]).output
