"""Runs a recipe's two steps, asks all questions, and writes the page."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from cleaner_rl.train.launch.checks import check_template
from cleaner_rl.train.launch.cold_start import cold_start_folder, trained_model
from cleaner_rl.train.launch.start import TrainingFailedError, sandbox, train
from cleaner_rl.train.preflight.findings import Finding, Preflight, Verdict
from cleaner_rl.train.preflight.page import html
from cleaner_rl.train.recipe.load import read_recipe
from cleaner_rl.train.recipe.settings import Recipe, run_folder
from cleaner_rl.train.recipe.stages import stage_recipe
from cleaner_rl.train.rows import Graded
from cleaner_rl.train.verl.overrides import number, overrides
from cleaner_rl.train.verl.settings import LEARNING_RATE, with_settings
from cleaner_rl.trajectory import Phase
from cleaner_rl.trajectory.store import read

STEPS = 2
WITNESS = "cleaner_rl.train.preflight.witness"
LOUD = 1e-4
"""The least learning rate: with the 1e-6 of a real run nobody could tell whether an update has reached the engine."""


def run_preflight(
    recipe: Recipe | str | Path, settings: Iterable[str] = (), *, tell: Callable[[str], None] = lambda _: None
) -> Preflight:
    """Run two real steps of a recipe in a folder of their own, and say whether the whole run can be started here.

    The steps have the recipe's own batch, budget and devices. Three things differ: the learning rate is at least 1e-4,
    so that a missing weight update shows; there is no evaluation; and one row per prompt is as long as the recipe
    allows, by tokens outside the loss. A cold start that is finished is used, and otherwise left out. The page is
    `preflight.html` in the folder, beside `preflight.json` and the store, which `cleaner view` opens.

    Args:
        recipe: A recipe, or the path of its YAML file.
        settings: Overrides of a recipe file, such as "batch.prompts=64".
        tell: Takes the lines that say how the two steps are doing.

    Raises:
        RecipeError: The recipe can't be run; the message says why and what to change.

    Example:
        ```python
        from cleaner_rl.train import run_preflight

        found = run_preflight("recipes/saar-4b.yaml")
        print(found.verdict, [each.words for each in found.findings if each.change])
        ```
    """
    from cleaner_rl.train.preflight import witness

    whole = recipe if isinstance(recipe, Recipe) else read_recipe(recipe, settings)
    tried = short(whole)
    folder = run_folder(tried)
    shutil.rmtree(folder, ignore_errors=True)  # an earlier preflight, from which this one would resume
    seen = folder / "witness"
    seen.mkdir(parents=True)
    findings: list[Finding] = []
    longest = str(tried.budget.response_tokens)
    try:
        with _environment({witness.FOLDER: str(seen), witness.LONGEST: longest}):
            train(tried, tell=tell)
    except TrainingFailedError as error:
        findings.append(Finding("run", Verdict.FAILED, str(error), "Read the error; it is the run's own."))
    findings += answers(whole, tried, folder, seen)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    found = Preflight(whole.name, str(folder), findings)
    values = {"verdict": found.verdict, **msgspec.to_builtins(found)}
    (folder / "preflight.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    (folder / "preflight.html").write_text(html(found), encoding="utf-8")
    return found


def short(recipe: Recipe) -> Recipe:
    """Return the recipe of the two steps."""
    if recipe.stages:
        recipe = stage_recipe(recipe, recipe.stages[0], recipe.model.path, recipe.tasks.train)
    model = trained_model(cold_start_folder(recipe)) if recipe.cold_start is not None else None
    settings = overrides(recipe, run_folder(recipe))
    saves = number(settings, "trainer.save_freq") > 0
    changes = {
        LEARNING_RATE: max(LOUD, number(settings, LEARNING_RATE)),
        f"{LEARNING_RATE}_warmup_steps": 0,
        "trainer.save_freq": STEPS if saves else -1,
        "trainer.logger": ["file"],
        "actor_rollout_ref.model.external_lib": WITNESS,
    }
    tried = replace(
        recipe,
        name=f"{recipe.name}-preflight",
        model=recipe.model if model is None else replace(recipe.model, path=str(model)),
        cold_start=None,
        tasks=replace(recipe.tasks, held_out=[]),
        run=replace(recipe.run, steps=STEPS),
    )
    return with_settings(tried, changes)


def answers(whole: Recipe, tried: Recipe, folder: Path, seen: Path) -> Iterator[Finding]:
    """Yield the findings about a run.

    Args:
        whole: The recipe that is to be run.
        tried: The recipe that was run.
        folder: The folder of that run.
        seen: What the witness wrote down.
    """
    # They load clients and engines' helpers, for which `cleaner train` needn't wait.
    from cleaner_rl.train.preflight import capacity, exactness, witness

    store = folder / "trajectories"
    rows = [each for each in read(store, Phase.TRAINING) if each.key.run == tried.name] if store.exists() else []
    # One that the infrastructure broke can't be kept; if it was, its rows in the update are a finding.
    kept: list[Graded] = [each for each in rows if each.usable and each.info.verdict and each.info.verdict["kept"]]  # type: ignore[misc]
    trained = witness.seen(seen)
    yield from exactness.check_rows(kept, trained, witness.rolled(seen), tried)
    yield exactness.check_advantages(kept, trained, tried)
    yield from exactness.check_logprobs(kept, trained, tried)
    yield exactness.check_template(kept, check_template(tried, folder).keeps)
    yield capacity.check_memory(trained)
    if rows:
        last = max(each.key.step for each in rows)  # the first one waits for an engine that isn't warm
        with sandbox(tried, folder) as addresses:
            yield capacity.check_sandbox([each for each in rows if each.key.step == last], addresses, tried)  # type: ignore[misc]
    yield capacity.check_cores(whole)
    yield capacity.check_disk(folder, whole)
    yield capacity.check_time(_step_seconds(folder), whole)


def _step_seconds(folder: Path) -> list[float]:
    """Return how long each step took, as verl measured it."""
    lines = [line for file in sorted(folder.glob("verl-*.jsonl")) for line in file.read_text().splitlines()]
    found = (json.loads(line).get("data", {}) for line in lines)
    return [data["timing_s/step"] for data in found if "timing_s/step" in data]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have child processes see these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
