"""What `cleaner eval` takes from a training run's plan, and what it counts while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import click
from click.core import ParameterSource

from cleaner_rl.cli.progress import Update
from cleaner_rl.cli.words import said
from cleaner_rl.evaluate import measure
from cleaner_rl.train import RunEvaluation, run_evaluation
from cleaner_rl.trajectory import AnyTrajectory, Trajectory, before_repairs

NEARLY_ALL = 0.9
"""The share of calls that fail from which on the sandbox is suspect."""


def optional(option: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make an option optional that `--run` can give."""

    def decorate(command: Any) -> Any:
        decorated = option(command)
        decorated.__click_params__[-1].required = False
        return decorated

    return decorate


def settings_of_run(context: click.Context, chosen: dict[str, Any]) -> RunEvaluation | None:
    """Return the run that is evaluated, and take what its plan says where no option says otherwise."""
    found = None
    if chosen["run"] is not None:
        default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
        free = {name for name in chosen if context.get_parameter_source(name) in default}
        try:
            found = run_evaluation(chosen["run"], chosen["step"])
            chosen |= {name: value for name, value in found.options().items() if name in free}
            if {"sandbox", "sandbox_token"} <= free:
                chosen["sandbox_token"] = found.sandbox_token()
        except (OSError, ValueError) as error:
            raise click.ClickException(said(error)) from None
    for option, value in {"--model": chosen["model"], "--tasks": chosen["sets"]}.items():
        if not value:
            raise click.UsageError(f"Missing option '{option}'{'; the run has no held-out tasks' * bool(found)}.")
    return found


@dataclass(slots=True)
class CallCounts:
    """Counts calls, and those that failed by their error, before any repair."""

    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: AnyTrajectory) -> None:
        """Count the calls of a rollout."""
        if not trajectory.info.injected:
            results = [
                result for turn in before_repairs(cast("Trajectory[Any]", trajectory)).turns for result in turn.results
            ]
            self.calls += len(results)
            self.errors.update(
                result.exception.type if result.exception else str(result.status) for result in results if result.failed
            )

    @property
    def text(self) -> str:
        """Return the most frequent errors, and a warning if nearly every call failed."""
        if not self.errors:
            return ""
        failed = self.errors.total()
        frequent = ", ".join(f"{name} ({count})" for name, count in self.errors.most_common(3))
        text = f"{failed} of {self.calls} calls failed; the most frequent errors: {frequent}."
        if failed < NEARLY_ALL * self.calls:
            return text
        return (
            f"warning: {text} Is this the sandbox that the model was trained with? For a model of yours take its "
            "settings with --run"
        )


def counted(update: Update, calls: CallCounts) -> Callable[[AnyTrajectory, bool], None]:
    """Counts rollouts, and says how many tokens per second are sampled and how many calls fail."""
    begun = time.monotonic()
    lengths = failed = sampled = done = 0

    def count(trajectory: AnyTrajectory, cached: bool) -> None:
        nonlocal lengths, failed, sampled, done
        done += 1
        calls.add(trajectory)
        if not cached:
            sample = measure(trajectory)
            lengths += sample.sampled + sample.lookahead
            failed += sample.failed_first
            sampled += 1
        speed = lengths / (time.monotonic() - begun)
        note = f"{speed:,.0f} tokens/s, {failed / sampled:.2f} failed calls each" if sampled else "from the cache"
        update(done, note)

    return count
