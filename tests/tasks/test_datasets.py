"""Loaders on small files with the columns of the real data sets."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from contextlib import suppress
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.tasks import Cases, DatasetError, dataset_names, load_from_hub, load_tasks
from cleaner_rl.tasks.datasets.forms import looks_like_cases, read_cases
from cleaner_rl.tasks.datasets.rows import SkippedRowError
from cleaner_rl.tasks.datasets.sources import DAPO_AFTER, DAPO_BEFORE, SOURCES

Row = dict[str, object]


def packed(value: object) -> str:
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


def verl_row(question: str, truth: str, source: str, index: object, **more: object) -> Row:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": index, **more},
    }


STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
CALL = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
DIFFICULTY = {"DeepSeek-R1-Distill-Qwen-7B": 5}
GPQA: Row = {
    "Record ID": "rec1",
    "Question": "Which gas?",
    "Correct Answer": "Neon\n",
    "Incorrect Answer 1": "Iron",
    "Incorrect Answer 2": "Gold",
    "Incorrect Answer 3": "Salt",
    "High-level domain": "Chemistry",
}
LCB: Row = {
    "question_title": "Sum",
    "question_content": "Sum them.",
    "platform": "leetcode",
    "question_id": "3701",
    "contest_id": "c",
    "contest_date": "2025-02-01T00:00:00",
    "starter_code": "class Solution:\n    def total(self, n: List[int], k: int) -> int:\n        ",
    "difficulty": "easy",
    "public_test_cases": json.dumps(CALL),
    "private_test_cases": packed(CALL * 2),
    "metadata": json.dumps({"func_name": "total"}),
}
ROWS: dict[str, list[Row]] = {
    "dapo-math-17k": [verl_row(f"{DAPO_BEFORE}What is 1+1?{DAPO_AFTER}", "2", "math_dapo", "9a9b-uuid")] * 3,
    "skywork-or1-math": [
        verl_row("Half?", '["\\\\frac{1}{2}", "0.5"]', "train-math-x", 7, model_difficulty=DIFFICULTY),
    ],
    "skywork-or1-code": [
        verl_row("Read.", json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}), "train-code-x", 1),
        verl_row("Call.", json.dumps({"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}), "train-code-x", 2),
        verl_row("Assert.", json.dumps({"assert_case": ["assert f(1, k=[2]) == (3,)"]}), "train-code-x", 3),
        verl_row("Import.", json.dumps({"assert_case": ["assert f(open('x')) == 3"]}), "train-code-x", 4),
    ],
    "megascience": [
        {"question": "Speed?", "answer": "long", "subject": "physics", "reference_answer": "3 m/s", "source": "tb"},
        {"question": "Why?", "answer": "long", "subject": "physics", "reference_answer": "", "source": "tb"},
    ],
    "open-agentrl-30k": [
        verl_row("One?", "1", "math_dapo", 0),
        verl_row("Two?", "two words", "mega-science", 0),
        verl_row("Read.", json.dumps({"inputs": ["1"], "outputs": ["2"]}), "skywork-code", 0),
    ],
    "aime24": [{"ID": "2024-I-1", "Problem": "Find it.", "Solution": "So.", "Answer": 204}],
    "aime25": [{"problem": "Find that.", "answer": "70"}],
    "math-500": [
        {
            "problem": "Polar?",
            "solution": "So.",
            "answer": "\\left( 3,\n \\frac{\\pi}{2} \\right)",
            "subject": "Precalculus",
            "level": 2,
            "unique_id": "test/precalculus/807.json",
        }
    ],
    "gpqa-diamond": [GPQA],
    "lcb": [LCB],
    "lcb-v6": [LCB],
}


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_each_data_set_has_a_file_here() -> None:
    assert sorted(ROWS) == dataset_names()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_task_or_accounted_for(name: str, suffix: str, tmp_path: Path) -> None:
    loaded = load_tasks(name, write(tmp_path / f"rows{suffix}", ROWS[name]))
    assert loaded.tasks
    assert len(loaded.tasks) + len(loaded.skipped) + loaded.duplicates == len(ROWS[name])
    assert all(task.id.startswith(f"{name}/") and task.source.startswith(name) for task in loaded.tasks)


def load(name: str, tmp_path: Path, rows: list[Row] | None = None, seed: int = 0) -> dict[str, tuple[str, str]]:
    loaded = load_tasks(name, write(tmp_path / "rows.jsonl", ROWS[name] if rows is None else rows), seed=seed)
    return {task.question: (task.grader, task.truth) for task in loaded.tasks}


def test_dapo_is_stripped_of_its_words_and_its_copies(tmp_path: Path) -> None:
    loaded = load_tasks("dapo-math-17k", write(tmp_path / "rows.parquet", ROWS["dapo-math-17k"]))
    (task,) = loaded.tasks
    assert (task.id, task.question, task.truth) == ("dapo-math-17k/9a9b-uuid", "What is 1+1?", "2")
    assert loaded.duplicates == 2


def test_skywork_accepts_each_of_its_answers(tmp_path: Path) -> None:
    assert load("skywork-or1-math", tmp_path) == {"Half?": ("math", "\\frac{1}{2}\n0.5")}
    (task,) = load_tasks("skywork-or1-math", tmp_path / "rows.jsonl").tasks
    assert task.extra == {"model_difficulty": DIFFICULTY}


def test_skywork_programs_in_three_forms(tmp_path: Path) -> None:
    loaded = load_tasks("skywork-or1-code", write(tmp_path / "rows.jsonl", ROWS["skywork-or1-code"]))
    read, call, asserted = (Cases.loads(task.truth) for task in loaded.tasks)
    assert (read.entry, read.cases[0].input, read.cases[0].output) == (None, "1\n", "2\n")
    assert (call.entry, json.loads(call.cases[0].input)["args"], call.cases[0].output) == ("add", [1, 2], "3")
    assert (asserted.entry, asserted.cases[0].output) == ("f", "[3]")
    assert json.loads(asserted.cases[0].input) == {"args": [1], "kwargs": {"k": [2]}}
    (skipped,) = loaded.skipped
    assert skipped.row == 4
    assert "literal" in skipped.reason


def test_a_mixture_is_graded_by_what_its_references_are(tmp_path: Path) -> None:
    graders = {question: grader for question, (grader, _) in load("open-agentrl-30k", tmp_path).items()}
    assert graders == {"One?": "math", "Two?": "math", "Read.": "code"}


def test_contests_are_read_in_both_spellings(tmp_path: Path) -> None:
    assert load("aime24", tmp_path) == {"Find it.": ("math", "204")}
    assert load("aime24", tmp_path, ROWS["aime25"]) == {"Find that.": ("math", "70")}
    assert load("aime25", tmp_path, ROWS["aime24"]) == {"Find it.": ("math", "204")}


def test_a_reference_is_one_line(tmp_path: Path) -> None:
    assert load("math-500", tmp_path) == {"Polar?": ("math", "\\left( 3, \\frac{\\pi}{2} \\right)")}


def test_gpqa_choices_are_ordered_by_the_seed_alone(tmp_path: Path) -> None:
    letters = set()
    for seed in range(20):
        ((question, (grader, letter)),) = load("gpqa-diamond", tmp_path, seed=seed).items()
        assert f"{letter}) Neon" in question.splitlines()
        assert grader == "choice"
        assert load("gpqa-diamond", tmp_path, seed=seed) == {question: (grader, letter)}
        letters.add(letter)
    assert letters == set("ABCD")


@pytest.mark.parametrize("solution", ["C", "\\boxed{C}", "The answer is C."])
def test_gpqa_with_its_choices_written_out(solution: str, tmp_path: Path) -> None:
    row: Row = {"problem": "Which?\nA) x\nC) y", "solution": solution, "domain": "Physics", "data_source": "gpqa"}
    assert load("gpqa-diamond", tmp_path, [row]) == {"Which?\nA) x\nC) y": ("choice", "C")}


def test_rows_without_a_usable_reference_are_skipped(tmp_path: Path) -> None:
    for name, row in (
        ("gpqa-diamond", {"problem": "Which?", "solution": "None of them."}),
        ("skywork-or1-math", verl_row("Half?", "[]", "x", 1) | {"reward_model": {"ground_truth": []}}),
    ):
        loaded = load_tasks(name, write(tmp_path / "rows.jsonl", [dict(row)]))
        assert (loaded.tasks, len(loaded.skipped)) == ((), 1)
    assert load("skywork-or1-math", tmp_path, [verl_row("Half?", '["a', "x", 1)]) == {"Half?": ("math", '["a')}


def test_livecodebench_has_public_and_private_tests_and_its_starter_code(tmp_path: Path) -> None:
    ((question, (grader, truth)),) = load("lcb-v6", tmp_path).items()
    cases = Cases.loads(truth)
    assert (grader, cases.entry, len(cases.cases)) == ("code", "total", 3)
    assert json.loads(cases.cases[2].input)["args"] == [[1, 2], 3]
    assert "def total" in question
    plain = {**LCB, "starter_code": "", "metadata": "{}", "public_test_cases": "[]"}
    plain["private_test_cases"] = json.dumps(STDIN)
    ((question, (_, truth)),) = load("lcb-v6", tmp_path, [plain]).items()
    assert question.startswith("Sum them.\n\n")
    assert "stdin" in question
    assert Cases.loads(truth).entry is None


def test_livecodebench_as_the_evaluation_set_has_it(tmp_path: Path) -> None:
    reference = json.dumps({"ground_truth": json.dumps({"inputs": ["1"], "outputs": ["2"]}), "style": "rule"})
    row: Row = {"problem": "Read.", "reward_model": reference, "extra_info": "{}", "ability": "code"}
    assert load("lcb-v6", tmp_path, [row])["Read."][0] == "code"
    row["reward_model"] = {"ground_truth": json.dumps(packed(STDIN))}
    assert Cases.loads(load("lcb-v6", tmp_path, [row])["Read."][1]).cases[0].output == "2\n"


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('the pickle ran')",)


def test_a_pickle_that_would_do_something_is_refused() -> None:
    evil = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(SkippedRowError, match="packed"):
        read_cases(evil)


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"input": ' + "9" * 5_000])
def test_finding_test_cases_that_no_reader_takes_are_skipped(text: str) -> None:
    assert not looks_like_cases(text)
    with pytest.raises(SkippedRowError, match="neither JSON"):
        read_cases(text)


def test_finding_packed_test_cases_that_expand_without_end_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = json.dumps([{"input": " " * 10_000, "output": ""}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(cases))).decode()
    assert len(read_cases(packed).cases) == 1
    monkeypatch.setattr("cleaner_rl.tasks.datasets.forms.UNPACKED_BYTES", 1_000)
    with pytest.raises(SkippedRowError, match="packed"):
        read_cases(packed)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a": ' + "9" * 5_000 + "}"])
def test_finding_line_of_tasks_that_no_reader_takes_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(line)
    with pytest.raises(DatasetError, match=r"tasks\.jsonl, line 1"):
        load_tasks("aime24", tmp_path / "tasks.jsonl")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[]", "no test cases"),
        ("", "no test cases"),
        ("5", "neither a list"),
        ("nonsense!", "neither JSON"),
        ({"other": 1}, "no known form"),
        ({"inputs": ["1"], "outputs": []}, "same length"),
        ({"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, "not JSON"),
        ({"assert_case": ["assert f(1)"]}, "literal"),
        ({"assert_case": ["assert f(1) == 1", "assert g(1) == 1"]}, "one function"),
        ({"assert_case": ["assert ("]}, "literal"),
        ({"assert_case": ["assert f(1, **{'b': 2}) == 3"]}, "literal"),
        ({"assert_case": ["assert f((1, 2)) == 3"]}, "arguments"),
        ({"assert_case": ["assert f([{1: 2}]) == 3"]}, "arguments"),
        ({"assert_case": ["assert f(k={'a': (1,)}) == 3"]}, "arguments"),
        ({"assert_case": ["assert f({1}) == 3"]}, "not JSON"),
        ({"assert_case": ["assert f(1) == {3}"]}, "not JSON"),
        ({"test_code": "def check(candidate):\n    assert candidate(1) == 1"}, "no entry point"),
        ({"inputs": "12", "outputs": "34"}, "not two lists"),
        ([["a", "b"]], "no input"),
        ([{"input": "a"}], "no output"),
    ],
)
def test_tests_in_no_known_form_are_skipped_with_the_reason(value: object, reason: str) -> None:
    with pytest.raises(SkippedRowError, match=reason):
        read_cases(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["input", "output", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FORMS = ["inputs", "outputs", "fn_name", "assert_case", "test_code", "entry_point"]


@given(VALUES | st.dictionaries(st.sampled_from(FORMS), VALUES | st.just("assert f(1) == 2")))
def test_whatever_a_row_holds_it_is_read_or_skipped(value: object) -> None:
    with suppress(SkippedRowError):
        assert read_cases(value).cases


@pytest.mark.parametrize(
    ("outputs", "wanted"), [([3, 30], [3, 30]), ([[3], [30]], [3, 30]), ([[3], [30, 3]], [[3], [30, 3]])]
)
def test_a_list_as_input_holds_the_arguments(outputs: list[object], wanted: list[object]) -> None:
    cases = read_cases({"inputs": [[1, [2, "x"]], [10, [20]]], "outputs": outputs, "fn_name": "f"})
    assert [json.loads(case.input)["args"] for case in cases.cases] == [[1, [2, "x"]], [10, [20]]]
    assert [json.loads(case.output) for case in cases.cases] == wanted


def test_checks_of_a_candidate_are_calls_of_the_entry_point() -> None:
    code = "def check(candidate):\n    assert candidate(n=3) == 4\n    assert candidate(n=5) == 6\n"
    cases = read_cases({"import_prefix": "", "test_code": code, "entry_point": "Solution().next"})
    assert cases.entry == "next"
    assert [case.output for case in cases.cases] == ["4", "6"]


REQUIRED = [
    ("dapo-math-17k", "prompt"),
    ("dapo-math-17k", "reward_model"),
    ("megascience", "question"),
    ("aime24", "Problem"),
    ("aime24", "Answer"),
    ("aime25", "problem"),
    ("math-500", "answer"),
    ("gpqa-diamond", "Incorrect Answer 3"),
    ("lcb-v6", "question_content"),
    ("lcb-v6", "private_test_cases"),
    ("lcb-v6", "question_id"),
]


@pytest.mark.parametrize(("name", "column"), REQUIRED)
def test_a_missing_column_is_named_with_the_row_and_what_is_there(name: str, column: str, tmp_path: Path) -> None:
    row = {key: value for key, value in ROWS[name][0].items() if key != column}
    with pytest.raises(DatasetError) as error:
        load(name, tmp_path, [row])
    message = str(error.value)
    assert repr(column) in message
    assert "row 1" in message
    assert all(repr(key) in message for key in row)
    assert "column" in message


def test_files_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b")
    (tmp_path / "rows.jsonl").write_text('{"Problem": "?"\n')
    for file, words in (("none.jsonl", "no file"), ("rows.csv", "convert"), ("rows.jsonl", "line 1")):
        with pytest.raises(DatasetError, match=words):
            load_tasks("aime24", tmp_path / file)
    with pytest.raises(DatasetError, match="aime24"):
        load_tasks("aime23", tmp_path / "rows.jsonl")


def test_an_empty_answer_and_bad_structs_are_named(tmp_path: Path) -> None:
    for name, row in (
        ("aime24", {"Problem": "?", "Answer": " "}),
        ("lcb-v6", {**LCB, "metadata": "{"}),
        ("lcb-v6", {**LCB, "metadata": "[]"}),
    ):
        with pytest.raises(DatasetError, match="row 1"):
            load(name, tmp_path, [dict(row)])


def test_two_problems_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="'aime24/1'"):
        load("aime24", tmp_path, [{"ID": 1, "Problem": "a", "Answer": 1}, {"ID": 1, "Problem": "b", "Answer": 1}])


def test_the_hub_is_asked_for_the_sources_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub itself can't be reached from here: what is asked of `datasets` is all that can be seen."""
    asked: list[tuple[object, ...]] = []

    def load_dataset(hub: str, config: str | None, split: str) -> list[Row]:
        asked.append((hub, config, split))
        return [GPQA]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(load_from_hub("gpqa-diamond").tasks) == 1
    load_from_hub("gpqa-diamond", "somebody/copy")
    source = SOURCES["gpqa-diamond"]
    assert asked == [(source.hub, "gpqa_diamond", "train"), ("somebody/copy", "gpqa_diamond", "train")]
