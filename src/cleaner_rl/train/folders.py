"""Where a run lives, and where its parts do."""

from __future__ import annotations

from pathlib import Path

from cleaner_rl.train.recipe import Recipe


def run_folder(recipe: Recipe) -> Path:
    """Where a run lives."""
    return (Path(recipe.run.folder).expanduser() / recipe.name).absolute()


def part_folders(recipe: Recipe) -> list[Path]:
    """The folders of a run that hold a plan and a store: its own, or those of its stages."""
    folder = run_folder(recipe)
    return [folder / f"{recipe.name}-{stage.name}" for stage in recipe.stages] or [folder]
