"""Prompts as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner_rl.tasks import ToolKind, load_prompt, prompt_names
from cleaner_rl.tools import call_format
from tests.tasks.builders import task

CALLS = {
    "hermes": '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>',
    "fenced": "```python\nprint(1)\n```",
}
OTHER_TOOLS = {
    "sql": '<tool_call>\n{"name": "sql", "arguments": {"query": "SELECT 1"}}\n</tool_call>',
    "shell": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
}


@pytest.mark.parametrize("name", prompt_names())
def test_a_prompt_of_the_package_is_whole(name: str) -> None:
    prompt = load_prompt(name)
    assert prompt.name == name
    assert prompt.tool_kind == (name if name in ("session", "shell", "sql") else "stateless")
    if name != "no-tool":
        call = OTHER_TOOLS.get(name) or CALLS[prompt.call_format]
        assert call_format(prompt.call_format).parse(call, prompt.tools).calls[0].problem is None
    for grader, form in (("math", "\\boxed{}"), ("choice", "letter"), ("code", "final program"), ("mine", "last line")):
        system, user = prompt.messages(task(grader))
        assert (system.role, user.role) == ("system", "user")
        assert user.content.startswith("How many?\n\n")
        assert form in user.content


def test_without_a_tool_nothing_is_a_call() -> None:
    prompt = load_prompt("no-tool")
    assert not prompt.tools
    for call in CALLS.values():
        assert call_format(prompt.call_format).parse(call, prompt.tools).calls == ()


def test_both_tools_of_the_recipes_are_there() -> None:
    assert prompt_names() == ["fenced", "no-tool", "session", "shell", "sql", "stateless"]
    assert load_prompt("session").tool_kind == ToolKind.SESSION


def test_ones_own_file_is_read_by_its_path(tmp_path: Path) -> None:
    source = Path(str(load_prompt.__globals__["_FOLDER"])) / "stateless.toml"
    file = tmp_path / "mine.toml"
    file.write_text(source.read_text().replace("[answer]", "[answers]"))
    with pytest.raises(ValueError, match="'answer'"):
        load_prompt(file)
    file.write_text(source.read_text())
    assert load_prompt(str(file)).name == "mine"


def test_ones_own_file_needs_only_what_differs_from_its_base(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('base = "sql"\n[tool.options]\ndatabase = "shop.duckdb"\n')
    prompt, base = load_prompt(file), load_prompt("sql")
    assert (prompt.name, prompt.tool_options) == ("shop", {"database": "shop.duckdb"})
    assert (prompt.tool, prompt.system, prompt.tool_kind) == (base.tool, base.system, "sql")
    file.write_text('base = "nothing"')
    with pytest.raises(LookupError, match="'nothing'"):
        load_prompt(file)


def test_of_the_answers_too_only_those_that_differ_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "stateless"\n[answer]\nmath = "In a box."\n')
    prompt, base = load_prompt(file), load_prompt("stateless")
    assert prompt.answer_format == {**base.answer_format, "math": "In a box."}


def test_a_base_may_have_a_base_which_is_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "first.toml").write_text('base = "sql"\nsystem = "First."\n[tool.options]\ndatabase = "a.duckdb"\n')
    (tmp_path / "inner" / "second.toml").write_text('base = "../first.toml"\n[tool]\nname = "ask"\n')
    prompt, base = load_prompt(tmp_path / "inner" / "second.toml"), load_prompt("sql")
    assert (prompt.name, prompt.system, prompt.tool.name) == ("second", "First.", "ask")
    assert (prompt.tool_options, prompt.answer_format) == ({"database": "a.duckdb"}, base.answer_format)
    (tmp_path / "first.toml").write_text('base = "inner/second.toml"\n')
    with pytest.raises(ValueError, match="itself"):
        load_prompt(tmp_path / "inner" / "second.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tool = 5", "'tool'"),
        ('answer = "x"', "'answer'"),
        ("system = 5", "'system'"),
        ("= 3", "TOML"),
        ("a = " + "[" * 100_000, "TOML"),
        ("system" + ".a" * 5_000 + " = 1", "system"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_file(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "stateless"\n{text}\n')
    with pytest.raises(ValueError, match=f"mine.toml.*{said}"):
        load_prompt(file)


def test_an_unknown_prompt_is_refused_with_those_there_are() -> None:
    with pytest.raises(LookupError, match="fenced, no-tool, session, shell, sql, stateless"):
        load_prompt("papers")


def test_examples_stand_before_the_problem(tmp_path: Path) -> None:
    source = Path(str(load_prompt.__globals__["_FOLDER"])) / "fenced.toml"
    file = tmp_path / "mine.toml"
    shown = '[[examples]]\nrole = "user"\ncontent = "One?"\n\n[[examples]]\nrole = "assistant"\ncontent = "1"\n\n[tool]'
    file.write_text(source.read_text().replace("[tool]", shown, 1))
    messages = load_prompt(file).messages(task("math"))
    assert [each.role for each in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].content == "1"
