"""Every option of `cleaner rollout` and `cleaner eval` reaches the object that uses it.

Both open a sandbox and a runner before they call the function that does the work, so what all three receive counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cleaner_rl.cli.eval import eval as eval_command
from cleaner_rl.cli.rollout import rollout as rollout_command
from cleaner_rl.tasks import Message, Task
from cleaner_rl.tasks.datasets import Loaded
from tests.cli.test_settings_arrive import NO_SETTINGS, Option, Received, flat

TASKS = tuple(Task(f"t/{number}", (Message("user", "1+1?"),), "math", "2") for number in range(3))
MODEL = {
    "--model": Option(("--model", "other"), {"runner.model.model": "other"}),
    "--url": Option(("--url", "http://b"), {"runner.model.urls": ("http://b",)}),
    "--engine": Option(("--engine", "sglang"), {"runner.model.engine": "sglang"}),
    "--token": Option(("--token", "t"), {"runner.model.token": "t"}),
    "--temperature": Option(("--temperature", "0.5"), {"runner.model.sampling.temperature": 0.5}),
    "--top-p": Option(("--top-p", "0.5"), {"runner.model.sampling.top_p": 0.5}),
    "--top-k": Option(("--top-k", "5"), {"runner.model.sampling.top_k": 5}),
    "--template": Option(("--template", "thinking=false"), {"runner.model.template": {"thinking": False}}),
    "--window": Option(("--window", "77"), {"runner.model.window": 77}),
    "--patience": Option(("--patience", "7"), {"runner.model.patience": 7.0, "sandbox.patience": 7.0}),
    "--prompt": Option(("--prompt", "session"), {"runner.prompt": "session"}),
    "--turns": Option(("--turns", "3"), {"runner.budget.turns": 3}),
    "--concurrency": Option(("--concurrency", "9"), {"runner.concurrency": 9, "sandbox.sessions": 9}),
    "--sandbox": Option(("--sandbox", "http://s"), {"sandbox.urls": ("http://s",)}),
    "--sandbox-token": Option(("--sandbox-token", "s"), {"sandbox.token": "s"}),
}
OF_A_RUN = {"--run", "--step"}
"""They set other options (`tests/evaluate/test_command.py`)."""
PURIFIER = "runner.purifier.config"
ROLLOUT = {
    **MODEL,
    "--url": Option(("--url", "http://b"), {"runner.model.urls": ("http://a", "http://b")}),
    "--tasks": Option(("--tasks", "b.jsonl"), {"sets": ("a.jsonl", "b.jsonl")}),
    "--out": Option(("--out", "elsewhere"), {"work.out": Path("elsewhere")}),
    "--samples": Option(("--samples", "4"), {"work.samples": 4}),
    "--limit": Option(("--limit", "2"), {"work.tasks": 2}),
    "--repair": Option(
        ("--repair", "hindsight"), {"runner.purifier.mode": "hindsight", f"{PURIFIER}.scope": "successful"}
    ),
    "--tokens": Option(("--tokens", "50"), {"runner.budget.tokens": 50}),
    "--seconds": Option(("--seconds", "5"), {"runner.budget.seconds": 5.0}),
    "--lookahead": Option(("--lookahead", "60"), {"runner.budget.lookahead": 60}),
    "--attempts": Option(("--attempts", "2"), {f"{PURIFIER}.attempts": 2}),
    "--threshold": Option(("--threshold", "0.7"), {f"{PURIFIER}.repair.threshold": 0.7}),
    "--scope": Option(("--scope", "successful"), {f"{PURIFIER}.scope": "successful"}),
    "--rescore": Option(("--rescore",), {"runner.purifier.rescore": True}, ("--no-rescore",)),
    "--no-rescore": Option(("--no-rescore",), {"runner.purifier.rescore": False}),
    "--seed": Option(("--seed", "5"), {"runner.seed": 5, "sets_seed": 5}),
    "--run": Option(("--run", "mine"), {"work.run": "mine"}),
    "--retries": Option(("--retries", "0"), {"runner.retries": 0}),
}
EVAL = {
    **MODEL,
    "--model": Option(("--model", "other"), {"runner.model.model": "other", "work.model": "other"}, ("--name", "n")),
    "--engine": Option(("--engine", "sglang"), {"runner.model.engine": "sglang", "work.settings.engine": "sglang"}),
    "--temperature": Option(
        ("--temperature", "0.5"), {"runner.model.sampling.temperature": 0.5, "work.settings.temperature": 0.5}
    ),
    "--top-p": Option(("--top-p", "0.5"), {"runner.model.sampling.top_p": 0.5, "work.settings.top_p": 0.5}),
    "--top-k": Option(("--top-k", "5"), {"runner.model.sampling.top_k": 5, "work.settings.top_k": 5}),
    "--template": Option(
        ("--template", "thinking=false"),
        {"runner.model.template": {"thinking": False}, "work.settings.template": {"thinking": False}},
    ),
    "--limit": Option(("--limit", "2"), {"plan.limit": 2}),
    "--tasks": Option(("--tasks", "b.jsonl"), {"sets": ("a.jsonl", "b.jsonl")}),
    "--name": Option(("--name", "mine"), {"work.name": "mine"}, ("--out", "o")),
    "--samples": Option(("--samples", "4"), {"plan.samples": 4}),
    "--repair": Option(("--repair", "off"), {"plan.repairs": ("off",)}),
    "--attempts": Option(("--attempts", "2"), {"plan.config.attempts": 2}),
    "--recovery": Option(("--recovery", "1"), {"plan.failures": 1}),
    "--tokens": Option(("--tokens", "50"), {"runner.budget.tokens": 50, "runner.budget.lookahead": 50}),
    "--tool-seconds": Option(
        ("--tool-seconds", "3"), {"runner.request.limits.cpu_seconds": 3.0, "work.settings.tool_seconds": 3.0}
    ),
    "--seed": Option(("--seed", "5"), {"plan.seed": 5}),
    "--out": Option(("--out", "elsewhere"), {"work.out": Path("elsewhere")}),
    "--cache": Option(("--cache", "kept"), {"work.cache": Path("kept")}),
}
COMMANDS: Mapping[str, tuple[click.Command, Sequence[str], Mapping[str, Option]]] = {
    "rollout": (
        rollout_command,
        ("--tasks", "a.jsonl", "--model", "m", "--url", "http://a", "--out", "out"),
        ROLLOUT,
    ),
    "eval": (eval_command, ("--tasks", "a.jsonl", "--model", "m"), EVAL),
}


def received(name: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the sandbox, the runner and the function behind a command are called with, by path."""
    given: dict[str, Any] = {}

    def note(what: str, values: Mapping[str, Any]) -> None:
        for each, value in values.items():
            given.update(flat(f"{what}.{each}", value))

    @asynccontextmanager
    async def sandbox(**options: Any) -> AsyncIterator[object]:
        note("sandbox", options)
        yield object()

    @asynccontextmanager
    async def runner(model: Any, prompt: Any, _sandbox: Any, **options: Any) -> AsyncIterator[object]:
        note("runner", {"model": model, "prompt": getattr(prompt, "name", prompt), **options})
        yield SimpleNamespace(model=None)

    def sets(names: Sequence[str], *, seed: int) -> dict[str, Loaded]:
        given.update(sets=tuple(names), sets_seed=seed)
        return {"set": Loaded(TASKS, (), 0)}

    def plan(names: Sequence[str], _prompt: Any, **options: Any) -> object:
        given.update(sets=tuple(names))
        note("plan", options)
        return SimpleNamespace(jobs=lambda: iter(()))

    async def collect(_runner: Any, tasks: Sequence[Task], out: Path, *, settings: Any, **options: Any) -> None:
        assert settings  # all options again, for the folder
        note("work", {"tasks": len(tasks), "out": out, **options})
        raise Received

    async def evaluate(_plan: Any, _runner: Any, out: Path, *, settings: Mapping[str, Any], **options: Any) -> None:
        note("work", {"out": out, **options})
        note("work.settings", settings)
        raise Received

    module = f"cleaner_rl.cli.{name}"
    monkeypatch.setattr(f"{module}.open_sandbox", sandbox)
    monkeypatch.setattr(f"{module}.open_runner", runner)
    if name == "rollout":
        monkeypatch.setattr(f"{module}.load_sets", sets)
        monkeypatch.setattr(f"{module}.collect", collect)
    else:
        monkeypatch.setattr(f"{module}.load_plan", plan)
        monkeypatch.setattr(f"{module}.evaluate", evaluate)
    command, arguments, _ = COMMANDS[name]
    ran = CliRunner().invoke(command, [*arguments, *words])
    assert isinstance(ran.exception, Received), ran.output
    return given


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_an_entry(name: str) -> None:
    command, _, options = COMMANDS[name]
    found = {
        each
        for option in command.params
        if isinstance(option, click.Option)
        for each in (*option.opts, *option.secondary_opts)
    }
    assert found - NO_SETTINGS - (OF_A_RUN if name == "eval" else set()) == options.keys()


@pytest.mark.parametrize(("name", "option"), [(name, each) for name, made in COMMANDS.items() for each in made[2]])
def test_an_option_arrives_where_it_is_used(
    name: str, option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = COMMANDS[name][2][option]
    without = received(name, entry.besides, monkeypatch)
    given = received(name, (*entry.besides, *entry.words), monkeypatch)
    differ = {path for path in {**without, **given} if without.get(path) != given.get(path)}
    assert differ == entry.changes.keys()
    for path, value in entry.changes.items():
        assert given[path] == value
