"""What all processes of a run need to know, in a file of the run's folder, which all of its machines see."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cleaner_rl.train.reading import to_recipe, to_values
from cleaner_rl.train.recipe import Recipe

AGENT = "cleaner"
"""The name of our agent loop in verl."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe, and where its sandbox is."""

    recipe: Recipe
    sandbox: tuple[str, ...]
    folder: Path

    def write(self) -> None:
        """Put it into the folder, with the file by which verl finds our agent loop."""
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {"recipe": to_values(self.recipe), "sandbox": list(self.sandbox)}
        plan_file(self.folder).write_text(json.dumps(values, indent=2), encoding="utf-8")
        loop = {"name": AGENT, "_target_": "cleaner_rl.train.agent.CleanerAgentLoop", "folder": str(self.folder)}
        agent_loops(self.folder).write_text(json.dumps([loop]), encoding="utf-8")  # JSON is YAML
        router = {"router_class": "cleaner_rl.train.router_actor.RouterActor", "longest": self.recipe.window}
        router_file(self.folder).write_text(json.dumps({**router, "room": self.recipe.device.kv_tokens}))


@lru_cache(1)
def read_plan(folder: str) -> Plan:
    """The plan of a run's folder; a process belongs to one run."""
    values = json.loads(plan_file(Path(folder)).read_text(encoding="utf-8"))
    return Plan(to_recipe(values["recipe"]), tuple(values["sandbox"]), Path(folder))


def plan_file(folder: Path) -> Path:
    """Where a run's plan lies."""
    return folder / "plan.json"


def agent_loops(folder: Path) -> Path:
    """Where verl finds our agent loop."""
    return folder / "agent_loop.yaml"


def router_file(folder: Path) -> Path:
    """Where verl finds our router."""
    return folder / "router.yaml"
