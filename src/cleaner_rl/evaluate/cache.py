"""Finished rollouts, kept from one evaluation to the next: a kill costs seconds of work, and nothing is done twice.

A folder of the cache belongs to one model under one group of settings; its name is their fingerprint. In it lies a
journal (`rollout.journal`). A rollout counts as done if it is complete, and if its task still asks the same. One whose
grader had a fault is graded again by the next run; one whose engine or tool broke is sampled again.

Limits: a model is known by the name it is given (for a local folder also by its files' sizes and times). Weights that
change behind an address under the same name can't be seen: name the checkpoint, or clear the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from cleaner_rl.rollout import Journal
from cleaner_rl.tasks import Task
from cleaner_rl.trajectory import AnyTrajectory


def fingerprint(values: Mapping[str, object]) -> str:
    """A short name for settings."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def model_identity(model: str) -> dict[str, object]:
    """What a model is known by."""
    folder = Path(model)
    weights = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    files = {file.name: [(stat := file.stat()).st_size, stat.st_mtime_ns] for file in weights}
    return {"model": model, "files": files} if files else {"model": model}


def cache_folder(folder: Path, settings: Mapping[str, object], seen_from: Path) -> str:
    """Where the rollouts of a model under these settings are, as a path from another folder."""
    return os.path.relpath(folder / fingerprint(settings), seen_from)


def open_cache(folder: Path, settings: Mapping[str, object], tasks: Mapping[str, Task]) -> Journal:
    """The journal of a model under these settings; what counts in it are rollouts of these tasks."""
    own = folder / fingerprint(settings)
    about = own / "settings.json"
    if not about.exists():
        own.mkdir(parents=True, exist_ok=True)
        about.write_text(json.dumps(settings, indent=1, ensure_ascii=False, default=str) + "\n")
    same = {name: asked(task) for name, task in tasks.items()}

    def counts(trajectory: AnyTrajectory) -> bool:
        return trajectory.info.asked == same.get(trajectory.key.task, "")

    return Journal(own, counts)


def marked(trajectory: AnyTrajectory, task: Task) -> AnyTrajectory:
    """A rollout that says what it was asked."""
    return replace(trajectory, info=replace(trajectory.info, asked=asked(task)))


def asked(task: Task) -> str:
    """The fingerprint of all that a task asks, and of how it is judged."""
    prompt = [(each.role, each.content) for each in task.prompt]
    return fingerprint({"prompt": prompt, "grader": task.grader, "truth": task.truth})
