"""Commands are thin: options in, one call of a public function, words out. What a command does, Python can do too."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

from tests.cli.test_flags import ALL

WORK = {
    "cleaner compare": "cleaner_rl.evaluate.compare",
    "cleaner demo": "cleaner_rl.rollout.demo_rollouts",
    "cleaner doctor": "cleaner_rl.doctor.diagnose",
    "cleaner eval": "cleaner_rl.evaluate.evaluate",
    "cleaner plugins": "cleaner_rl.doctor.check_plugins",
    "cleaner purify": "cleaner_rl.logs.purify",  # with --dry-run, `cleaner_rl.logs.preview`
    "cleaner regrade": "cleaner_rl.evaluate.regrade",
    "cleaner review": "cleaner_rl.view.serve_review",
    "cleaner rollout": "cleaner_rl.rollout.collect",
    "cleaner train": "cleaner_rl.train.train",  # with --dry-run, `train.check`; with --preflight, `train.run_preflight`
    "cleaner verify": "cleaner_rl.replay.verify",
    "cleaner view": "cleaner_rl.view.serve",  # with --export, `cleaner_rl.view.export`
}
"""The public function that does a command's work."""
OF_THE_SHELL = {"cleaner completion"}
"""Commands that are about the command line alone."""
BESIDE = {
    "cleaner_rl.evaluate.comparison_text",
    "cleaner_rl.evaluate.load_plan",
    "cleaner_rl.evaluate.measure",
    "cleaner_rl.evaluate.read_results",
    "cleaner_rl.evaluate.refuse_another_model",
    "cleaner_rl.evaluate.regraded_text",
    "cleaner_rl.evaluate.summary_text",
    "cleaner_rl.evaluate.train_report",
    "cleaner_rl.evaluate.unwritable",
    "cleaner_rl.evaluate.write_comparison",
    "cleaner_rl.logs.preview",
    "cleaner_rl.replay.checker",
    "cleaner_rl.replay.replay_problem",
    "cleaner_rl.rollout.open_runner",
    "cleaner_rl.rollout.standard_graders",
    "cleaner_sandbox.open_sandbox",
    "cleaner_rl.tasks.load_prompt",
    "cleaner_rl.tasks.load_sets",
    "cleaner_rl.train.as_arguments",
    "cleaner_rl.train.check",
    "cleaner_rl.train.part_folders",
    "cleaner_rl.train.read_recipe",
    "cleaner_rl.train.run_folder",
    "cleaner_rl.train.run_preflight",
    "cleaner_rl.trajectory.read_reviews",
    "cleaner_rl.trajectory.residual_tally",
    "cleaner_rl.trajectory.store.read",
    "cleaner_rl.view.export",
    "cleaner_rl.view.page_from",
    "cleaner_rl.view.sample",
}
"""Public functions that read or open what that function takes, or put its result into words or files."""
MOST_LINES = 150
LONG = {
    "cleaner_rl.cli.eval": 200,
    "cleaner_rl.cli.purify": 300,
    "cleaner_rl.cli.rollout": 240,
}
"""They have many options."""


def module_of(command: str) -> str:
    callback = ALL[command].callback
    assert callback is not None
    return str(inspect.unwrap(callback).__module__)


def called(command: str) -> set[str]:
    """The functions and classes of other packages that a command and its module's helpers call, by dotted name."""
    callback = ALL[command].callback
    assert callback is not None
    tree = ast.parse(inspect.getsource(importlib.import_module(module_of(command))))
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    waiting, seen, found = [inspect.unwrap(callback).__name__], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in (inner for statement in helpers[name].body for inner in ast.walk(statement)):
            if not isinstance(node, ast.Call):
                continue
            first, _, rest = ast.unparse(node.func).partition(".")
            if first in helpers:
                waiting.append(first)
            elif first in imported:
                found.add(f"{imported[first]}.{rest}".rstrip("."))
    return {name for name in found if name.startswith("cleaner_rl.") and not name.startswith("cleaner_rl.cli.")}


def value_of(name: str) -> object:
    return pkgutil.resolve_name(name)


def test_each_command_is_in_a_table() -> None:
    assert set(ALL) == {*WORK, *OF_THE_SHELL}


@pytest.mark.parametrize("command", WORK)
def test_a_command_calls_one_public_function(command: str) -> None:
    functions = {name for name in called(command) if inspect.isfunction(value_of(name))}
    assert functions - BESIDE == {WORK[command]}


@pytest.mark.parametrize("name", sorted({*WORK.values(), *BESIDE}))
def test_that_function_is_public_and_explains_itself(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert attribute in importlib.import_module(module).__all__
    assert inspect.getdoc(value_of(name))


@pytest.mark.parametrize("module", sorted({module_of(command) for command in WORK}))
def test_a_module_of_commands_is_short(module: str) -> None:
    file = inspect.getsourcefile(importlib.import_module(module))
    assert file is not None
    assert len(Path(file).read_text().splitlines()) <= LONG.get(module, MOST_LINES)
