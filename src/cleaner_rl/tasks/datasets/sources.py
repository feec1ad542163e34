"""The data sets of the papers, each with the columns it really has.

| name | on the hub | columns that are read |
| --- | --- | --- |
| `dapo-math-17k` | BytedTsinghua-SIA/DAPO-Math-17k | verl's; its hundredfold copies are dropped as duplicates |
| `skywork-or1-math`, `-code` | Skywork/Skywork-OR1-RL-Data, math, code | verl's; `extra_info.model_difficulty` |
| `megascience` | MegaScience/MegaScience | question, reference_answer, subject, source |
| `open-agentrl-30k` | Gen-Verse/Open-AgentRL-30K | verl's; a mixture: the grader follows from the reference |
| `aime24` | Maxwell-Jia/AIME_2024 | Problem, Answer, ID (lower case too) |
| `aime25` | math-ai/aime25 | problem, answer, id (capitalised too) |
| `math-500` | HuggingFaceH4/MATH-500 | problem, answer, subject, level, unique_id |
| `gpqa-diamond` | Idavidrein/gpqa, gpqa_diamond | Question, Correct Answer, Incorrect Answer 1 to 3, Record ID |
| `lcb-v6` | lighteval/code_generation_lite, v6 | question_content, public_test_cases, private_test_cases, ... |
| `lcb` | lighteval/code_generation_lite, release_latest | the same, of all its releases |

The files of Gen-Verse/Open-AgentRL-Eval are read by the benchmark's loader: aime2024 and aime2025 as they are,
gpqa_diamond with problem (choices included) and solution, lcb_v6 with problem and JSON in reward_model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from cleaner_rl.tasks.datasets.forms import looks_like_cases, read_cases
from cleaner_rl.tasks.datasets.rows import Row, SkippedRowError
from cleaner_rl.tasks.grading import choice_letter
from cleaner_rl.tasks.task import Message, Task, messages
from cleaner_rl.tools import derive_seed, read_json

Read = Callable[[str, Row, int], Task]
"""(name of the data set, row, seed) to a task."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set is, and how its rows are read."""

    read: Read
    hub: str
    split: str = "train"
    config: str | None = None


DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'
"""What DAPO's rows say around each problem. It contradicts any other answer format, so it is taken off."""


STDIN = "Your program reads the input from stdin and prints the answer to stdout. Do not run it on the sample inputs."
"""What LiveCodeBench's own prompt says, in these or other words, where a problem has no starter code."""


def _verl(name: str, row: Row, _seed: int) -> Task:
    """A row in verl's columns; a reference with test cases is a program's, anything else is mathematics."""
    prompt = tuple(Message(each.role, _bare(each.content)) for each in messages(row.need("prompt")))
    reference = row.struct("reward_model").need("ground_truth")
    information = row.struct("extra_info") if row.get("extra_info") is not None else Row({}, row.number, row.origin)
    part = str(row.get("data_source") or "")
    kept = {
        key: value for key, value in information.values.items() if key not in ("index", "split") and value is not None
    }
    code = looks_like_cases(reference) or str(row.get("ability") or "") == "code"
    index = information.get("index")
    question = "\n".join(each.content for each in prompt)
    return Task(
        # An index is a name only where one data set gave it.
        id=f"{name}/{_short_name(question) if index is None or name == 'open-agentrl-30k' else index}",
        prompt=prompt,
        grader="code" if code else "math",
        truth=read_cases(reference).dumps() if code else _accepted(reference),
        source=f"{name}/{part}" if part else name,
        split=str(information.get("split") or "train"),
        extra=kept,
    )


def _megascience(name: str, row: Row, _seed: int) -> Task:
    reference = row.get("reference_answer")
    if not isinstance(reference, str) or not reference.strip():
        raise SkippedRowError("it has no reference answer")
    extra = {key: row.get(key) for key in ("subject", "source") if row.get(key) is not None}
    return _asked(name, row.text("question"), None, "math", _one_line(reference), "train", extra)


def _contest(name: str, row: Row, _seed: int) -> Task:
    number = row.get("ID", "id")
    return _asked(
        name, row.text("Problem", "problem"), number, "math", _one_line(row.text("Answer", "answer")), "test", {}
    )


def _math_500(name: str, row: Row, _seed: int) -> Task:
    extra = {key: row.get(key) for key in ("subject", "level") if row.get(key) is not None}
    truth = _one_line(row.text("answer"))
    return _asked(name, row.text("problem"), row.get("unique_id"), "math", truth, "test", extra)


def _gpqa(name: str, row: Row, seed: int) -> Task:
    if row.get("problem") is not None:
        solution = row.text("solution").strip()
        letter = solution if len(solution) == 1 else choice_letter(solution)
        if letter is None:
            raise SkippedRowError("its solution names no choice")
        extra = {"domain": row.get("domain")} if row.get("domain") else {}
        return _asked(name, row.text("problem"), None, "choice", letter, "test", extra)
    question, right = row.text("Question").strip(), row.text("Correct Answer").strip()
    wrong = [row.text(f"Incorrect Answer {number}").strip() for number in (1, 2, 3)]
    number = str(row.get("Record ID") or _short_name(question))
    # The right answer comes first in the file; where it stands here depends on the seed and the task alone.
    options = sorted([right, *wrong], key=lambda option: derive_seed(seed, "gpqa", number, option))
    listed = "\n".join(f"{letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
    extra = {"domain": row.get("High-level domain")} if row.get("High-level domain") else {}
    letter = "ABCD"[options.index(right)]
    return _asked(name, f"{question}\n\n{listed}", number, "choice", letter, "test", extra)


def _livecodebench(name: str, row: Row, _seed: int) -> Task:
    if row.get("problem") is not None:
        cases = read_cases(row.struct("reward_model").need("ground_truth"))
        return _asked(name, row.text("problem"), None, "code", cases.dumps(), "test", {})
    entry = row.struct("metadata").get("func_name") if row.get("metadata") else None
    function = str(entry) if entry else None
    cases = read_cases(row.need("public_test_cases"), row.need("private_test_cases"), entry=function)
    question, starter = row.text("question_content").strip(), str(row.get("starter_code") or "")
    if starter.strip():
        question += f"\n\nComplete this code:\n```python\n{starter.rstrip()}\n```"
    elif function is None:
        question += f"\n\n{STDIN}"
    extra = {key: str(row.get(key)) for key in ("difficulty", "platform", "contest_date") if row.get(key) is not None}
    return _asked(name, question, row.need("question_id"), "code", cases.dumps(), "test", extra)


def _short_name(text: str) -> str:
    """A name for a question that has none."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _asked(
    name: str, question: str, number: object, grader: str, truth: str, split: str, extra: Mapping[str, object]
) -> Task:
    own = _short_name(question) if number is None else number
    return Task(f"{name}/{own}", messages(question), grader, truth, name, split, extra)


def _bare(content: str) -> str:
    return content.removeprefix(DAPO_BEFORE).removesuffix(DAPO_AFTER)


def _accepted(reference: object) -> str:
    """One accepted answer a line; Skywork-OR1 has a list of them, as JSON text."""
    answers: object = reference
    if isinstance(reference, str) and reference.lstrip().startswith('["'):
        try:
            answers = read_json(reference)
        except ValueError:
            answers = reference
    listed = answers if isinstance(answers, list) else [answers]
    lines = [_one_line(str(answer)) for answer in listed if str(answer).strip()]
    if not lines:
        raise SkippedRowError("it has no reference answer")
    return "\n".join(lines)


def _one_line(answer: str) -> str:
    """LaTeX reads a line break as a space; our references stand on one line each."""
    return " ".join(answer.split())


SOURCES: Mapping[str, Source] = {
    "dapo-math-17k": Source(_verl, "BytedTsinghua-SIA/DAPO-Math-17k"),
    "skywork-or1-math": Source(_verl, "Skywork/Skywork-OR1-RL-Data", "math"),
    "skywork-or1-code": Source(_verl, "Skywork/Skywork-OR1-RL-Data", "code"),
    "megascience": Source(_megascience, "MegaScience/MegaScience"),
    "open-agentrl-30k": Source(_verl, "Gen-Verse/Open-AgentRL-30K"),
    "aime24": Source(_contest, "Maxwell-Jia/AIME_2024"),
    "aime25": Source(_contest, "math-ai/aime25", "test"),
    "math-500": Source(_math_500, "HuggingFaceH4/MATH-500", "test"),
    "gpqa-diamond": Source(_gpqa, "Idavidrein/gpqa", "train", "gpqa_diamond"),
    "lcb-v6": Source(_livecodebench, "lighteval/code_generation_lite", "test", "v6"),
    "lcb": Source(_livecodebench, "lighteval/code_generation_lite", "test", "release_latest"),
}
