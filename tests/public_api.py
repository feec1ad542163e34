"""The public surface as a list: every name that a package exports, with its signature."""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_origin

LIST = Path(__file__).with_name("public_api.txt")
MODULES = (
    "cleaner_rl.tools",
    "cleaner_rl.trajectory",
    "cleaner_rl.trajectory.store",
    "cleaner_rl.purify",
    "cleaner_rl.logs",
    "cleaner_rl.replay",
    "cleaner_rl.resample",
    "cleaner_rl.tasks",
    "cleaner_rl.rollout",
    "cleaner_rl.rollout.engines",
    "cleaner_rl.rollout.balance",
    "cleaner_rl.evaluate",
    "cleaner_rl.train",
    "cleaner_rl.train.rows",
    "cleaner_rl.train.trl",
    "cleaner_rl.doctor",
    "cleaner_rl.view",
)
CONTRACTS = ("call_formats", "graders", "log_adapters", "tools", "trainers")


def listed() -> str:
    """Return the whole list."""
    return "".join(f"{line}\n" for line in surface())


def surface() -> Iterator[str]:
    """A line for each public name."""
    for module in MODULES:
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            yield f"{module}.{name}{_shape(getattr(found, name))}"
    for contract in CONTRACTS:
        module = f"cleaner_rl.contracts.{contract}"
        for name, value in sorted(vars(importlib.import_module(module)).items()):
            if name.endswith("Contract"):
                asked = sorted(each for each in vars(value) if not each.startswith(("_", "test_")))
                yield f"{module}.{name}: {', '.join(asked)}"


def _shape(value: object) -> str:
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return ": " + ", ".join(str(each.value) for each in value)
    if isinstance(value, type) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        methods = sorted(each for each in vars(value) if not each.startswith("_"))
        return ": " + ", ".join(methods) if methods else ""
    if isinstance(value, type) and issubclass(value, dict):
        return ": " + ", ".join(sorted(value.__annotations__))
    is_ours = get_origin(value) is None and getattr(value, "__module__", "").startswith("cleaner_rl")
    if is_ours and (inspect.isclass(value) or inspect.isfunction(value)):
        return _signature(value)
    return ""


def _signature(value: Callable[..., object]) -> str:
    """Names, types, and defaults that are plain values; others are only there or not."""
    found = inspect.signature(value)
    plain = str | int | float | None
    parameters = [
        each if each.default is each.empty or isinstance(each.default, plain) else each.replace(default=...)
        for each in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters)).replace("'", "").removesuffix(" -> None")
