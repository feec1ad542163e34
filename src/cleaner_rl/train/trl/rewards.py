"""Reward functions of a `GRPOTrainer`, asked about rollouts before their repairs.

TRL calls reward functions when a batch is complete, and rollouts are repaired and selected by then. So each function is
called here, about one rollout at a time, when the rollout is graded; the trainer then reads what it said.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from cleaner_rl.tasks import RewardFunction, Task
from cleaner_rl.tools import feedback
from cleaner_rl.train.rows import Graded
from cleaner_rl.trajectory import TokenSpan, Turn


def grader_of(
    function: Callable[..., Any], tokenizer: Any, prompt: Callable[[Task], Any], trainer: Any
) -> RewardFunction:
    """Return a reward function of TRL's as a grader. It says 0 where the function says None, as in TRL's own sum."""

    def text(turn: Turn[TokenSpan]) -> str:
        spans = [turn.reasoning] if turn.action is None else [turn.reasoning, turn.action]
        return str(tokenizer.decode([each for span in spans for each in span.ids.tolist()], skip_special_tokens=True))

    async def grade(task: Task, _text: str, rollout: Graded) -> float:
        messages = []
        for turn in rollout.turns:
            messages.append({"role": "assistant", "content": text(turn)})
            messages += [{"role": "tool", "content": feedback(result)} for result in turn.results]
        said = function(
            prompts=[prompt(task)],
            completions=[messages],
            completion_ids=[rollout.ids()[len(rollout.prompt) :].tolist()],
            trainer_state=trainer.state,
            log_metric=lambda *_: None,
            log_extra=lambda *_: None,
            **{name: [value] for name, value in {**task.extra, "truth": task.truth, "task": task}.items()},
        )
        values = await said if isawaitable(said) else said
        value: Any = values[0] if isinstance(values, list) and len(values) == 1 else values
        return 0.0 if value is None else value

    return grade
