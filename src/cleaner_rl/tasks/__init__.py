"""Problems, data sets and graders: what a model is asked, and whether its final answer is right.

- `task`: one problem as plain data.
- `datasets`: the papers' data sets by their real columns, from a file or the hub; verl's files both ways.
- `prompts`: what is said around a task, as TOML.
- `grading`: right, wrong, or a fault of the grader's own; mathematics, choices, programs.

Limits: sympy and math-verify are loaded by the first grade that needs algebra, in
processes of their own; nothing here imports them.
"""

from cleaner_rl.tasks.datasets import (
    DatasetError,
    dataset_names,
    from_verl,
    load_from_hub,
    load_named,
    load_sets,
    load_tasks,
    read_verl,
    write_verl,
)
from cleaner_rl.tasks.grading import (
    GRADERS,
    AnyGrader,
    Case,
    Cases,
    ChoiceGrader,
    CodeGrader,
    CodeRun,
    Grade,
    Grader,
    MathGrader,
    MathPool,
    Outcome,
    RewardFunction,
    RewardScale,
    StateGrader,
    UngradableError,
    WrongGradeError,
    boxed,
    check_gradable,
    grade,
    without_thinking,
)
from cleaner_rl.tasks.prompts import Prompt, ToolKind, load_prompt, prompt_names
from cleaner_rl.tasks.task import Message, Task

__all__ = [
    "GRADERS",
    "AnyGrader",
    "Case",
    "Cases",
    "ChoiceGrader",
    "CodeGrader",
    "CodeRun",
    "DatasetError",
    "Grade",
    "Grader",
    "MathGrader",
    "MathPool",
    "Message",
    "Outcome",
    "Prompt",
    "RewardFunction",
    "RewardScale",
    "StateGrader",
    "Task",
    "ToolKind",
    "UngradableError",
    "WrongGradeError",
    "boxed",
    "check_gradable",
    "dataset_names",
    "from_verl",
    "grade",
    "load_from_hub",
    "load_named",
    "load_prompt",
    "load_sets",
    "load_tasks",
    "prompt_names",
    "read_verl",
    "without_thinking",
    "write_verl",
]
