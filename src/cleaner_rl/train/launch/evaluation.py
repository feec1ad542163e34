"""How a run evaluates, for `cleaner eval --run`: its plan decides, so that a checkpoint is judged as it was trained."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner_rl.tasks import AnyGrader, Task
from cleaner_rl.train.launch.rewind import checkpointed
from cleaner_rl.train.recipe.settings import Recipe, RecipeError
from cleaner_rl.train.verl.custom_reward import custom_graders, custom_name, graded_by, has_custom_reward
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.plan import plan_file, read_plan
from cleaner_rl.train.verl.runner import budget_of, read_token, session_request
from cleaner_rl.train.verl.settings import ROLLOUT, template_of
from cleaner_rl.trajectory import Phase
from cleaner_sandbox import NodeConfig
from cleaner_sandbox.protocol import SessionRequest

TOP_K = f"{ROLLOUT}.val_kwargs.top_k"


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """A checkpoint of a run, with the settings of the run's own evaluation."""

    recipe: Recipe
    folder: Path
    step: int

    @property
    def model(self) -> Path:
        """Return the folder of the checkpoint's model."""
        return self.folder / "checkpoints" / f"global_step_{self.step}" / "actor" / "huggingface"

    @property
    def request(self) -> SessionRequest:
        """Return what a call, or a session, is given in the sandbox."""
        return session_request(self.recipe)

    @property
    def node(self) -> NodeConfig | None:
        """Return the node that the run started for itself; None if its recipe names addresses."""
        # Not at the top: a run starts `node` as a program, and Python warns if a package has imported it before.
        from cleaner_rl.train.launch.node import node_config

        return None if self.recipe.sandbox.addresses else node_config(self.recipe.sandbox)

    def sandbox_token(self) -> str | None:
        """Return the token of the run's sandbox, which is for its addresses and no others."""
        return read_token(self.recipe.sandbox.token_file)

    @property
    def reward_function(self) -> str:
        """Return the file and the name of the recipe's own reward function."""
        return custom_name(self.recipe)

    def graders(self) -> dict[str, AnyGrader]:
        """Return the recipe's own reward function, if it has one."""
        if not has_custom_reward(self.recipe):
            return {}
        from transformers import AutoTokenizer

        return {**custom_graders(self.recipe, AutoTokenizer.from_pretrained(self.model))}

    def graded(self, task: Task) -> Task:
        """Return a task with the grader that the recipe gives it."""
        return graded_by(self.recipe, task)

    def options(self) -> dict[str, object]:
        """Return the options of `cleaner eval` that the plan decides, by their names."""
        recipe = self.recipe
        settings = overrides(recipe, self.folder)
        budget = budget_of(recipe, Phase.EVALUATION)
        top_k = int(number({TOP_K: -1, **settings}, TOP_K))
        return {
            "sets": recipe.tasks.held_out,
            "model": str(self.model),
            "name": f"{recipe.name}-step-{self.step}",
            "prompt": recipe.prompt,
            "temperature": number(settings, f"{ROLLOUT}.val_kwargs.temperature"),
            "top_p": number(settings, f"{ROLLOUT}.val_kwargs.top_p"),
            "top_k": None if top_k < 1 else top_k,
            "template": [f"{name}={json.dumps(value)}" for name, value in template_of(recipe).items()],
            "turns": budget.turns,
            "tokens": budget.tokens,
            "attempts": recipe.purify.attempts,
            "tool_seconds": recipe.sandbox.cpu_seconds,
            "sandbox": recipe.sandbox.addresses,
        }


def run_evaluation(folder: Path, step: int | None = None) -> RunEvaluation:
    """Return how a checkpoint of a run is evaluated: that of a step, or the last.

    Raises:
        RecipeError: The folder holds no run, or no model of this step.
    """
    if not plan_file(folder).exists():
        raise RecipeError(f"{folder} holds no run: {plan_file(folder)} is missing; give the folder of a run or a stage")
    found = RunEvaluation(read_plan(str(folder)).recipe, folder, checkpointed(folder))
    found = found if step is None else replace(found, step=step)
    if not found.model.is_dir():
        saved = sorted(int(each.name.rpartition("_")[2]) for each in (folder / "checkpoints").glob("global_step_*"))
        raise RecipeError(f"{found.model} is missing; {folder} has checkpoints of the steps {saved or 'none'} (--step)")
    return found
