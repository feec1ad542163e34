"""Writes and reads the plan: what all processes of a run need to know, in a folder that all machines share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cleaner_rl.train.recipe.load import to_recipe, to_values
from cleaner_rl.train.recipe.settings import Recipe

AGENT = "cleaner"
"""The name under which verl knows our agent loop."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Holds a recipe and the addresses of its sandbox."""

    recipe: Recipe
    sandbox: tuple[str, ...]
    folder: Path

    def write(self) -> None:
        """Write it into the folder, with the files by which verl finds our agent loop and router."""
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {"recipe": to_values(self.recipe), "sandbox": list(self.sandbox)}
        plan_file(self.folder).write_text(json.dumps(values, indent=2), encoding="utf-8")
        loop = {
            "name": AGENT,
            "_target_": "cleaner_rl.train.verl.agent_loop.CleanerAgentLoop",
            "folder": str(self.folder),
        }
        agent_loops(self.folder).write_text(json.dumps([loop]), encoding="utf-8")  # JSON is YAML
        router = {"router_class": "cleaner_rl.train.verl.router.EvenRouter", "longest": self.recipe.window}
        router_file(self.folder).write_text(json.dumps(router))


@lru_cache(1)
def read_plan(folder: str) -> RunPlan:
    """Read the plan of a run's folder; a process belongs to one run."""
    values = json.loads(plan_file(Path(folder)).read_text(encoding="utf-8"))
    return RunPlan(to_recipe(values["recipe"]), tuple(values["sandbox"]), Path(folder))


def plan_file(folder: Path) -> Path:
    """Return the file of a run's plan."""
    return folder / "plan.json"


def agent_loops(folder: Path) -> Path:
    """Return the file by which verl finds our agent loop."""
    return folder / "agent_loop.yaml"


def router_file(folder: Path) -> Path:
    """Return the file by which verl finds our router."""
    return folder / "router.yaml"


def lost_file(folder: Path) -> Path:
    """Return the file that says which part a run has lost, if it ended for that."""
    return folder / "lost.txt"
