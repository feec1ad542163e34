from __future__ import annotations

import json
import re

import pytest

from cleaner_rl.tools import ToolSet, ToolSpec, python_tool, read_json


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


@pytest.mark.parametrize(
    "text", ["[" * 100_000, b"[" * 100_000, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101]
)
def test_finding_deep_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="more than 100"):
        read_json(text)


def test_json_as_deep_as_allowed_is_read_and_brackets_in_texts_are_no_depth() -> None:
    assert read_json("[" * 100 + "]" * 100) == json.loads("[" * 100 + "]" * 100)
    assert read_json(json.dumps(["[" * 1_000])) == ["[" * 1_000]
    assert read_json(json.dumps([[each] for each in range(1_000)]).encode())[999] == [999]


def test_finding_integer_of_too_many_digits_is_a_value_error() -> None:
    assert read_json("9" * 4_300) == int("9" * 4_300)
    with pytest.raises(ValueError, match="more than 4,300 digits"):
        read_json("9" * 4_301)
