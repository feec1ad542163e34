from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tools import CallFormat, Status, ToolSet, ToolSpec, call_format, call_format_names, python_tool

PYTHON = python_tool()
SEARCH = ToolSpec("search", {"properties": {"n": {"type": "integer"}}, "required": ["query"]})
TOOLS = ToolSet(PYTHON, SEARCH)


def hermes(code: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": "python", "arguments": {"code": code}}) + "\n</tool_call>"


def xml(code: str) -> str:
    body = f"<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>"
    return f"<tool_call>\n{body}\n</tool_call>"


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def glm(code: str) -> str:
    return f"<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>{code}</arg_value>\n</tool_call>"


def llama(code: str) -> str:
    return json.dumps({"name": "python", "parameters": {"code": code}})


def deepseek(code: str) -> str:
    arguments = json.dumps({"code": code})
    opening = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
    return f"{opening}python\n```json\n{arguments}\n```<｜tool▁call▁end｜>"


def harmony(code: str) -> str:
    return "<|channel|>commentary to=functions.python <|constrain|>json<|message|>" + json.dumps({"code": code})


WRITERS = {
    "hermes": hermes,
    "xml": xml,
    "fenced": fenced,
    "glm": glm,
    "llama": llama,
    "deepseek": deepseek,
    "harmony": harmony,
}


@pytest.fixture(params=WRITERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_formats_are_found_by_name_and_a_wrong_name_lists_them() -> None:
    assert {"hermes", "xml", "fenced"} <= set(call_format_names())
    with pytest.raises(ValueError, match=r"'nope'.*fenced, glm, harmony, hermes, llama, xml"):
        call_format("nope")


def test_a_call_has_its_code_and_its_place(name: str) -> None:
    text = f"I think.\n{WRITERS[name]('print(1)')}\n bye"
    parsed = call_format(name).parse(text, TOOLS)
    (call,) = parsed.calls
    assert call.name == "python"
    assert call.code.strip() == "print(1)"
    assert call.problem is None
    assert call.refusal is None
    assert text[call.start : call.end] == WRITERS[name]("print(1)")
    assert parsed.action_start == call.start == len("I think.\n")


def test_text_without_a_call_is_reasoning_to_its_end(name: str) -> None:
    parsed = call_format(name).parse("The answer is `2`.", TOOLS)
    assert parsed.calls == ()
    assert parsed.action_start == len("The answer is `2`.")


def test_s5_several_calls_in_a_turn_are_found_in_order(name: str) -> None:
    write = WRITERS[name]
    text = f"{write('a = 1')}\nand\n{write('b = 2')}"
    calls = call_format(name).parse(text, TOOLS).calls
    assert [call.code.strip() for call in calls] == ["a = 1", "b = 2"]
    assert calls[0].end <= calls[1].start


def test_s3_a_call_that_breaks_off_is_a_failure_with_feedback(name: str) -> None:
    whole = "Then. \n" + WRITERS[name]("print(1)\nprint(2)")
    opening = call_format(name).parse(whole, TOOLS).calls[0].start
    first_body = {"xml": "<function", "fenced": "print", "glm": "python", "llama": '"python"'}.get(name, "{")
    for end in range(whole.index(first_body), len(whole)):
        (call,) = call_format(name).parse(whole[:end], TOOLS).calls
        assert call.start == opening
        assert call.end <= end
        assert call.problem, f"{whole[:end]!r} ended silently"
        result = call.refusal
        assert result is not None
        assert result.status is Status.MALFORMED
        assert result.failed
        assert result.explanation == call.problem


def test_s4_a_call_without_code_is_malformed_and_never_the_empty_program(name: str) -> None:
    (call,) = call_format(name).parse(WRITERS[name]("  \n"), TOOLS).calls
    assert "'code' of tool 'python' is empty" in str(call.problem)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "python", "arguments": {}}', "lacks the argument 'code'"),
        ('{"name": "python"}', "'arguments' must be a JSON object"),
        ('{"name": "python", "arguments": "print(1)"}', "'arguments' must be a JSON object"),
        ('{"arguments": {"code": "1"}}', "names no tool"),
        ('{"name": 3, "arguments": {"code": "1"}}', "names no tool"),
        ('["python"]', "must be a JSON object"),
        ('{"name": "pyhton", "arguments": {"code": "1"}}', "no tool named 'pyhton'. Available: 'python', 'search'."),
        ('{"name": "python", "arguments": {"code": 1}}', "must be a string, not a number"),
        ('{"name": "python", "arguments": {"code": null}}', "must be a string, not null"),
        ('{"name": "python", "arguments": {"code": ["1"]}}', "must be a string, not a list"),
        ('{"name": "python", "arguments": {"code": "print("a")"}}', "not valid JSON"),
        ('{"name": "python", "arguments": {"code": "1\n2"}}', "write line breaks as \\n"),
        ('{"name": "search", "arguments": {"query": NaN}}', "not valid JSON: NaN is not JSON"),
        ('{"name": "search", "arguments": {"query": -1e999}}', "not valid JSON: -1e999 is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name": "python", "arguments": {"code": "\\ud800"}}', "not valid Unicode"),
        ("", "not valid JSON"),
    ],
)
def test_hermes_says_what_is_wrong(body: str, problem: str) -> None:
    (call,) = call_format("hermes").parse(f"<tool_call>{body}</tool_call>", TOOLS).calls
    assert call.problem is not None
    assert problem in call.problem
    assert call.end == len(f"<tool_call>{body}</tool_call>")


def test_hermes_wants_the_closing_tag_right_after_the_json() -> None:
    text = '<tool_call>{"name": "python", "arguments": {"code": "1"}} trailing</tool_call> after'
    (call,) = call_format("hermes").parse(text, TOOLS).calls
    assert "no closing </tool_call>" in str(call.problem)
    assert text[call.end :] == " after"
    assert call.code == "1"


def test_an_unreadable_call_ends_where_the_next_begins() -> None:
    text = "<tool_call>{oops <tool_call>" + hermes("print(1)")[len("<tool_call>") :]
    broken, good = call_format("hermes").parse(text, TOOLS).calls
    assert broken.problem
    assert broken.end == good.start
    assert good.problem is None
    assert good.code == "print(1)"


def test_the_program_of_an_unreadable_call_is_made_out_for_comparison() -> None:
    text = '<tool_call>{"name": "python", "arguments": {"code": "a = \\"x\\"\\n\\tprint("b")\\\\"}}</tool_call>'
    (call,) = call_format("hermes").parse(text, TOOLS).calls
    assert call.problem
    assert call.code == 'a = "x"\n\tprint("b")\\'
    (none,) = call_format("hermes").parse('<tool_call>{"query": "x</tool_call>', ToolSet(SEARCH)).calls
    assert none.code == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool_call>python</tool_call>", "names no function"),
        ("<tool_call><function=python></function></tool_call>", "lacks the argument 'code'"),
        ("<function=pyhton><parameter=code>1</parameter></function>", "no tool named 'pyhton'"),
        ("<function=search><parameter=query>a</parameter><parameter=n>x</parameter></function>", "of type integer"),
        ("<function=search><parameter=query>a</parameter><parameter=n>NaN</parameter></function>", "of type integer"),
        ("<tool_call><function=python><parameter=code>1</parameter></function> x", "no closing </tool_call>"),
        ("<function=python><parameter=code>1</parameter> x</function>", "'code' has no closing </parameter>"),
        ("<function=python>x</function>", "no closing </function>"),
        ("<function=python><parameter=code>\ud800</parameter></function>", "not valid Unicode"),
    ],
)
def test_xml_says_what_is_wrong(text: str, problem: str) -> None:
    (call,) = call_format("xml").parse(text, TOOLS).calls
    assert call.problem is not None
    assert problem in call.problem


NESTING = st.integers(1, 98) | st.integers(100, 1_100) | st.just(100_000)


@given(NESTING, st.sampled_from(["[", '{"a": ']), st.sampled_from(["hermes", "xml"]))
def test_arguments_nested_too_deeply_are_refused_in_words(depth: int, opening: str, form: str) -> None:
    value = opening * depth + "1" + {"[": "]"}.get(opening, "}") * depth
    text = {
        "hermes": f'<tool_call>{{"name": "search", "arguments": {{"query": "a", "n": {value}}}}}</tool_call>',
        "xml": f"<function=search><parameter=query>a</parameter><parameter=n>{value}</parameter></function>",
    }[form]
    (call,) = call_format(form).parse(text, TOOLS).calls
    assert (call.problem is None) == (depth < 100)
    assert json.loads(json.dumps(dict(call.arguments))) == call.arguments


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("glm", "<tool_call>python\n</tool_call>", "lacks the argument 'code'"),
        ("glm", "<tool_call>pyhton\n<arg_key>code</arg_key><arg_value>1</arg_value></tool_call>", "no tool named"),
        ("glm", "<tool_call>python\n<arg_key>code</arg_key><arg_value>1</tool_call>", "no closing </arg_value>"),
        ("glm", "<tool_call>python", "no closing </tool_call>"),
        ("glm", "<tool_call>python<arg_key>code</arg_key><arg_value>\ud800</arg_value></tool_call>", "Unicode"),
        (
            "glm",
            "<tool_call>search<arg_key>query</arg_key><arg_value>a</arg_value>"
            "<arg_key>n</arg_key><arg_value>x</arg_value></tool_call>",
            "of type integer",
        ),
        ("llama", '{"name": "python", "parameters": "1"}', "'parameters' must be a JSON object"),
        ("llama", '{"name": "python", "parameters": {"code": "1"', "breaks off before its JSON ends."),
        ("llama", '{"name": 3, "parameters": {}}', "names no tool"),
        ("deepseek", '<｜tool▁call▁begin｜><｜tool▁sep｜>{"code": "1"}<｜tool▁call▁end｜>', "names no tool"),
        ("deepseek", '<｜tool▁call▁begin｜>python<｜tool▁sep｜>{"code": "1"} x<｜tool▁call▁end｜>', "no closing"),
        ("harmony", "<|channel|>commentary to=functions.python json<|message|>[1]", "must be a JSON object"),
        ("harmony", "<|channel|>commentary to=functions.pyhton<|message|>{}", "no tool named 'pyhton'"),
    ],
)
def test_the_other_formats_say_what_is_wrong(form: str, text: str, problem: str) -> None:
    (call,) = call_format(form).parse(text, TOOLS).calls
    assert problem in str(call.problem)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("glm", "<tool_call>python<arg_key>code</arg_key><arg_value>print(1)</arg_value></tool_call>"),
        ("llama", '<|python_tag|>{"name": "python", "parameters": {"code": "print(1)"}}'),
        ("deepseek", '<｜tool▁call▁begin｜>python<｜tool▁sep｜>{"code": "print(1)"}<｜tool▁call▁end｜>'),
        ("harmony", ' to=functions.python<|channel|>commentary json<|message|>{"code": "print(1)"}'),
        ("harmony", '<|channel|>analysis to=python <|constrain|>json<|message|>{"code": "print(1)"}'),
    ],
)
def test_the_variants_of_a_format_are_read(form: str, text: str) -> None:
    (call,) = call_format(form).parse(text, TOOLS).calls
    assert (call.name, call.code, call.problem, call.start) == ("python", "print(1)", None, 0)


def test_a_harmony_call_begins_behind_the_opening_of_its_message() -> None:
    """So the words before it end alike in all turns, and a graft of another turn's call continues them."""
    thought = "<|channel|>analysis<|message|>I need to=x.<|end|><|start|>assistant"
    parsed = call_format("harmony").parse(thought + harmony("1"), TOOLS)
    assert parsed.action_start == len(thought)


def test_xml_takes_types_from_the_schema_and_needs_no_outer_tag() -> None:
    text = "<function=search><parameter=query>17</parameter><parameter=n>\n17\n</parameter></function>"
    (call,) = call_format("xml").parse(text, TOOLS).calls
    assert call.problem is None
    assert call.arguments == {"query": "17", "n": 17}
    assert call.code == '{"n": 17, "query": "17"}'


def test_xml_unreadable_call_ends_where_the_next_begins_and_keeps_its_code() -> None:
    text = "<function=python><parameter=code>print(1)\n" + xml("print(2)")
    broken, good = call_format("xml").parse(text, TOOLS).calls
    assert broken.problem
    assert good.problem is None
    assert broken.end == good.start
    assert broken.code == "print(1)"


def test_fenced_needs_a_tool_that_runs_programs_and_valid_text() -> None:
    (call,) = call_format("fenced").parse(fenced("1"), ToolSet(SEARCH)).calls
    assert "no tool" in str(call.problem)
    (open_call,) = call_format("fenced").parse("```python\n1", ToolSet(SEARCH)).calls
    assert open_call.end == len("```python\n1")
    (broken,) = call_format("fenced").parse(fenced("'\ud800'"), TOOLS).calls
    assert broken.problem is not None
    assert "not valid Unicode" in broken.problem


def test_fenced_knows_the_line_breaks_of_windows() -> None:
    (call,) = call_format("fenced").parse("So:\r\n```python\r\nprint(1)\r\n```\r\nDone.", TOOLS).calls
    assert (call.code, call.problem) == ("print(1)\r\n", None)


def test_fenced_leaves_other_blocks_alone_and_closes_on_a_line_of_its_own() -> None:
    assert not call_format("fenced").parse("```\nplain\n```\n```json\n{}\n```", TOOLS).calls
    (call,) = call_format("fenced").parse(fenced("s = '''```x'''\nprint(s)  # ```"), TOOLS).calls
    assert call.problem is None
    assert call.code == "s = '''```x'''\nprint(s)  # ```\n"


def test_a_call_inside_a_thinking_block_is_talk(name: str) -> None:
    write = WRITERS[name]
    text = f"<think>\nI could write\n{write('1')}\nbut</think>\n{write('2')}"
    (call,) = call_format(name).parse(text, TOOLS).calls
    assert call.code.strip() == "2"
    unclosed = f"<think>\nI could open <tool_call> or\n```py thon\n</think>\n{write('3')}"
    assert [each.code.strip() for each in call_format(name).parse(unclosed, TOOLS).calls] == ["3"]


def test_a_program_that_prints_the_end_of_thinking_is_still_a_call(name: str) -> None:
    (call,) = call_format(name).parse(WRITERS[name]("print('</think>')"), TOOLS).calls
    assert call.problem is None
    assert call.code.strip() == "print('</think>')"
    text = WRITERS[name]("print(1)") + "\n" + WRITERS[name]("print('</think>')")
    assert len(call_format(name).parse(text, TOOLS).calls) == 2
    thought = f"<think>\n{text}\n</think>\n" + WRITERS[name]("print(2)")
    assert [each.code.strip() for each in call_format(name).parse(thought, TOOLS).calls] == ["print(2)"]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_program_survives_hermes(code: str) -> None:
    (call,) = call_format("hermes").parse(f"hm {hermes(code)}", TOOLS).calls
    assert call.problem is None
    assert call.code == code


SLOW = {
    "openings": "<tool_call>" * 4_000,
    "functions without an end": "<function=" * 8_000,
    "parameters without an end": "<function=python><parameter=code>" * 8_000,
    "parameters with one end": "<function=python><parameter=code>\n" * 8_000 + "</parameter></function>",
    "fences": "```python\n" * 20_000,
    "spaces": "<tool_call>" + " " * 200_000,
}


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_texts_made_to_be_slow_are_not(text: str, name: str) -> None:
    begun = time.process_time()
    call_format(name).parse(text, TOOLS)
    assert time.process_time() - begun < 2


PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=python>",
        "<parameter=code>",
        "</parameter>",
        "</function>",
        "```",
        "\n",
        "```python\n",
        "{",
        '"code": "',
        '"',
        "}",
        "</think>",
        "print(1)",
        "�",
        "é",
        "\x00",
        '{"name": "python"',
        "<tool_call>python",
        "<arg_key>code</arg_key>",
        "<arg_value>",
        "</arg_value>",
        '{"name":',
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        " to=functions.python",
        "<|message|>",
    ]
)


@given(st.lists(PIECES, max_size=24).map("".join), st.sampled_from(sorted(WRITERS)))
def test_formats_never_raise_and_their_spans_never_overlap(text: str, name: str) -> None:
    form: CallFormat = call_format(name)
    parsed = form.parse(text, TOOLS)
    position = 0
    for call in parsed.calls:
        assert position <= call.start < call.end <= len(text)
        assert (call.problem is None) == (call.refusal is None)
        position = call.end
    assert form.parse(text, TOOLS) == parsed
