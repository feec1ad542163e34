"""Rows in the keys of each trainer: which turns are in the loss, what arguments are, and one schema for all files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from benchmarks.models import TEMPLATE, train_tokenizer
from cleaner_rl.logs import LogSettings, purify
from cleaner_rl.logs.formats import Reading
from cleaner_rl.logs.records import read_record
from cleaner_rl.logs.rendering import NO_LOSS, Template
from cleaner_rl.logs.sft import sft_rows
from cleaner_rl.logs.trainers import FORMS, Trainer, form_of, written_for

TOOLS = [{"type": "function", "function": {"name": "python", "parameters": {"properties": {"code": {}}}}}]


def call(number: int, arguments: Any, result: dict[str, Any], **said: Any) -> list[dict[str, Any]]:
    function = {"name": "python", "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    spoken = {"role": "assistant", "content": f"Step {number}.", "tool_calls": calls, **said}
    return [spoken, {"role": "tool", "tool_call_id": f"c{number}", **result}]


OK, BAD = {"content": "2", "exit_code": 0}, {"content": "SyntaxError", "exit_code": 1}
LOG: dict[str, Any] = {
    "id": "log-1",
    "success": True,
    "tools": TOOLS,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1?"},
        *call(0, {"code": "print(1)", "flag": None}, OK, reasoning_content="I add."),
        {"role": "user", "content": "Go on."},
        *call(1, '{"code": "print(', BAD),
        {"role": "user", "content": "Again."},
        *call(2, {"code": "print(2)"}, OK),
        {"role": "assistant", "content": "The answer is 2."},
    ],
}
FORGETFUL = """{% set seen = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}
{%- set seen.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content and loop.index0 > seen.last %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Like Qwen3's, it leaves out thoughts before the last question."""
MASK = [0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1]


def neutral(record: dict[str, Any] = LOG, form: str = "openai") -> list[dict[str, Any]]:
    return sft_rows(read_record(record, form, 0, Reading()))


def made(trainer: Trainer | None, record: dict[str, Any] = LOG) -> list[dict[str, Any]]:
    return list(written_for(neutral(record), form_of(trainer)))


@pytest.fixture(scope="module")
def template() -> Template:
    tokenizer = train_tokenizer(["print(1 + 1)", "The answer is 2.", "Step 1.", "Be brief."] * 50, 400)
    tokenizer.chat_template = TEMPLATE.read_text()
    return Template(tokenizer)


def learnt(template: Template, row: dict[str, Any]) -> str:
    return str(template.tokenizer.decode([label for label in row["labels"] if label != NO_LOSS]))


def test_arguments_are_objects_and_broken_ones_are_an_object_with_the_text() -> None:
    (row,) = made(None)
    assert [each["tool_calls"][0]["function"]["arguments"] for each in row["messages"] if "tool_calls" in each] == [
        {"code": "print(1)", "flag": None},
        {"input": '{"code": "print('},
        {"code": "print(2)"},
    ]
    assert row["loss_mask"] == MASK
    assert (row["success"], row["masked"], row["repaired"], row["edits"], row["part"]) == (True, [1], [], 0, 0)


@pytest.mark.parametrize(
    ("trainer", "flag"),
    [
        (Trainer.AXOLOTL, "train"),
        (Trainer.SWIFT, "loss"),
        (Trainer.TINKER, "trainable"),
        (Trainer.SLIME, "step_loss_mask"),
    ],
)
def test_the_mask_stands_in_each_message(trainer: Trainer, flag: str) -> None:
    (row,) = made(trainer)
    assert [int(each[flag]) for each in row["messages"]] == MASK
    assert all(isinstance(each[flag], int if trainer is Trainer.SLIME else bool) for each in row["messages"])
    assert "loss_mask" not in row
    arguments = row["messages"][2]["tool_calls"][0]["function"]["arguments"]
    if trainer is Trainer.SLIME:
        assert arguments == {"code": "print(1)", "flag": None}
        assert row["tools"] == TOOLS
    else:
        assert json.loads(arguments) == {"code": "print(1)", "flag": None}
        assert json.loads(row["tools"]) == TOOLS


def test_reasoning_is_where_the_trainer_reads_it() -> None:
    content = {each: made(each)[0]["messages"][2] for each in (None, Trainer.SWIFT, Trainer.TINKER)}
    assert (content[None]["content"], content[None]["reasoning_content"]) == ("Step 0.", "I add.")
    assert content[Trainer.SWIFT]["content"] == "<think>\nI add.\n</think>\n\nStep 0."
    assert content[Trainer.TINKER]["content"] == [
        {"type": "thinking", "thinking": "I add."},
        {"type": "text", "text": "Step 0."},
    ]
    assert all("reasoning_content" not in content[each] for each in (Trainer.SWIFT, Trainer.TINKER))


def test_a_trainer_that_masks_by_role_gets_no_turn_that_is_not_to_be_learnt() -> None:
    (row,) = made(Trainer.PRIME)
    assert [each["content"] for each in row["messages"]] == ["Be brief.", "1 + 1?", "Step 0.", "2", "Go on."]
    failed_first = {**LOG, "messages": [*LOG["messages"][:2], *LOG["messages"][5:]]}
    assert made(Trainer.PRIME, failed_first) == [], "its only rows would teach the failed call"


def test_tokens_and_labels_teach_the_turns_of_the_mask_and_their_ends(template: Template) -> None:
    rows = list(written_for(neutral(), form_of(Trainer.TRL), template))
    taught = "".join(learnt(template, row) for row in rows)
    assert taught.count("<|im_end|>") == sum(MASK)
    for said in ("Step 0.", "Step 2.", "The answer is 2.", '"code": "print(1)"'):
        assert said in taught
    for unsaid in ("Step 1.", "SyntaxError", "Be brief.", "Go on.", "<|im_start|>"):
        assert unsaid not in taught
    assert all(
        label in (token, NO_LOSS) for row in rows for token, label in zip(row["input_ids"], row["labels"], strict=True)
    )


def test_a_thought_that_the_template_drops_later_is_learnt_in_a_row_of_its_own() -> None:
    tokenizer = train_tokenizer(["print(1 + 1)", "The answer is 2."] * 50, 400)
    tokenizer.chat_template = FORGETFUL
    template = Template(tokenizer)
    rows = list(written_for(neutral(), form_of(Trainer.TRL), template))
    with_thought = [row for row in rows if "I add." in learnt(template, row)]
    whole = template.text(neutral()[0]["messages"], TOOLS)
    assert "I add." not in whole
    assert len(rows) == 2
    assert len(with_thought) == 1
    assert learnt(template, with_thought[0]) == "<think>I add.</think>Step 0.<|im_end|>"


def test_a_row_that_is_too_long_is_split_between_turns(template: Template) -> None:
    record = {
        "messages": [LOG["messages"][1], *(each for n in range(12) for each in call(n, {"code": f"print({n})"}, OK))]
    }
    whole = template.count(neutral(record)[0]["messages"], None)
    rows = list(written_for(neutral(record), form_of(None), template, whole // 3))
    assert len(rows) > 2
    assert [row["part"] for row in rows] == list(range(len(rows)))
    assert all(template.count(row["messages"], None) <= whole // 3 for row in rows)
    assert all(row["messages"][0] == LOG["messages"][1] for row in rows), "each begins with the task"
    said = [each["content"] for row in rows for each in row["messages"] if each["role"] == "assistant"]
    assert said == [f"Step {number}." for number in range(12)]
    assert list(written_for(neutral(record), form_of(None), template, 3)) == [], "no turn has room"


def test_a_row_ends_where_the_harness_put_a_summary_in_place_of_what_was_said() -> None:
    def line(number: int, role: str, content: Any, **more: Any) -> dict[str, Any]:
        parent = None if number == 0 else str(number - 1)
        return {
            "type": role,
            "uuid": str(number),
            "parentUuid": parent,
            "sessionId": "s",
            "message": {"role": role, "content": content},
            **more,
        }

    border = {"type": "system", "subtype": "compact_boundary", "uuid": "2", "parentUuid": "1"}
    said = [line(0, "user", "Begin."), line(1, "assistant", "Begun."), border]
    said += [line(3, "user", "Summary.", isCompactSummary=True), line(4, "assistant", "Done.")]
    rows = list(written_for(neutral({"lines": said}, "claude-code"), form_of(None)))
    assert [[each["content"] for each in row["messages"]] for row in rows] == [
        ["Begin.", "Begun."],
        ["Summary.", "Done."],
    ]
    assert [row["part"] for row in rows] == [0, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("trainer", [None, *(each for each in Trainer if each is not Trainer.TRL)])
def test_all_files_have_one_schema_whatever_the_first_one_lacks(trainer: Trainer | None, tmp_path: Path) -> None:
    plain = {"messages": [{"role": "user", "content": "Hello? " * 300}, {"role": "assistant", "content": "Hello."}]}
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (plain, LOG)))
    settings = LogSettings(sft="jsonl" if trainer is None else None, sft_for=trainer, piece_bytes=100, repair=None)  # type: ignore[arg-type]
    purify(tmp_path / "logs.jsonl", tmp_path / "out", settings)
    parts = sorted((tmp_path / "out/sft").glob("part-*"))
    assert len(parts) == 2
    if trainer in (Trainer.TINKER, Trainer.SLIME):
        return  # which read JSON line by line
    table = load_dataset(str(tmp_path / "out/sft"), split="train", cache_dir=str(tmp_path / "cache"))
    assert [table[0]["success"], table[1]["success"]] == [None, True]
    arguments = table[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    opened = json.loads(arguments) if FORMS.get(trainer, form_of(None)).text else arguments  # type: ignore[arg-type]
    assert opened == {"code": "print(1)", "flag": None}
    tools = table[1]["tools"]
    assert (json.loads(tools) if isinstance(tools, str) else tools) == TOOLS
    assert table[0]["tools"] is None


def test_the_same_conversation_is_written_once_over_all_files(tmp_path: Path) -> None:
    other = {**LOG, "messages": [{"role": "user", "content": "Else?"}, {"role": "assistant", "content": "No."}]}
    for kind in ("jsonl", "parquet"):
        out = tmp_path / kind
        logs = tmp_path / "logs.jsonl"
        logs.write_text("".join(json.dumps(each) + "\n" for each in (LOG, LOG, other, LOG, other)))
        settings = LogSettings(sft=kind, piece_bytes=100, repair=None)  # type: ignore[arg-type]
        for _ in range(2):  # the second time it only says again what it did
            found = purify(logs, out, settings).summary
            assert (found.sft_rows, found.duplicate_rows) == (2, 3)
        assert len(load_dataset(str(out / "sft"), split="train", cache_dir=str(tmp_path / "cache"))) == 2


def test_rows_of_solved_tasks_alone(tmp_path: Path) -> None:
    records = [LOG, {**LOG, "success": False}, {**LOG, "success": None, "tools": None}]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    settings = LogSettings(sft="jsonl", solved_only=True, repair=None)  # type: ignore[arg-type]
    purify(tmp_path / "logs.jsonl", tmp_path / "out", settings)
    (line,) = (tmp_path / "out/sft/part-000000.jsonl").read_text().splitlines()
    assert json.loads(line)["success"] is True


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"sft_for": "trl"}, "need a tokenizer"), ({"sft": "jsonl", "max_tokens": 9}, "needs a tokenizer")],
)
def test_what_needs_a_tokenizer_says_so(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LogSettings(**settings)


def test_a_template_that_takes_arguments_as_text_alone_gets_text() -> None:
    tokenizer = train_tokenizer(["print(1 + 1)"] * 50, 400)
    said = "{% if m.tool_calls %}{{ 'args: ' + m.tool_calls[0].function.arguments }}{% endif %}"
    tokenizer.chat_template = f"{{% for m in messages %}}{{{{ m.content }}}}{said}{{% endfor %}}"
    assert '"code": "print(1)"' in Template(tokenizer).text(neutral()[0]["messages"], None)
