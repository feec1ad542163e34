from __future__ import annotations

import re

import pytest

from cleaner_rl.tools import ToolSet, ToolSpec, python_tool


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        ToolSet(python_tool(), python_tool())


def test_a_tool_set_is_a_mapping_in_order() -> None:
    tools = ToolSet(python_tool("a"), python_tool("b"))
    assert list(tools) == ["a", "b"]
    assert len(tools) == 2
    assert tools["b"].name == "b"


def test_an_unknown_tool_of_an_empty_set_is_told_so() -> None:
    call = ToolSet().read("python", {}, 0, 1)
    assert "'python'" in str(call.problem)
    assert call.code == ""


def test_python_tool_requires_its_program() -> None:
    spec = python_tool("run", "source")
    assert spec.required == ("source",)
    assert spec.type_of("source") == "string"
    assert re.search("'run'.*'source'", str(spec.problem_with({})))
    assert spec.problem_with({"source": "1"}) is None
    assert spec.code_of({"source": "1"}) == "1"


def test_a_tool_without_a_program_is_compared_by_its_arguments() -> None:
    spec = ToolSpec("search")
    assert spec.problem_with({}) is None
    assert spec.code_of({"b": 1, "a": "é"}) == spec.code_of({"a": "é", "b": 1}) == '{"a": "é", "b": 1}'


def test_an_optional_program_may_be_missing() -> None:
    spec = ToolSpec("run", code_argument="code")
    assert spec.problem_with({}) is None
    assert spec.code_of({}) == ""


@pytest.mark.parametrize(
    "schema", [{"properties": 3}, {"properties": {"a": 3}}, {"properties": {"a": {"type": []}}}, {}]
)
def test_a_schema_without_a_type_gives_none(schema: dict[str, object]) -> None:
    assert ToolSpec("t", schema).type_of("a") is None


def test_a_schema_whose_required_is_no_list_requires_nothing() -> None:
    assert ToolSpec("t", {"required": "code"}).required == ()
