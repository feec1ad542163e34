from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from cleaner_rl.train import Recipe, RecipeError, to_recipe
from cleaner_rl.train.recipe.bounds import RANGES
from tests.train.recipes import values

ELSEWHERE = {"seed": "any number is a seed", "run.keep_checkpoints": "0 or 2 and more (`Recipe._sizes`)"}
"""Numbers without a range, each with the reason."""
CHECKED = ("purify.", "roc.")
"""Sections that are checked by the classes that they become."""


def numbers(kind: Any, where: str = "") -> list[str]:
    """The settings that are numbers, by their dotted keys."""
    found = []
    hints = get_type_hints(kind)
    for each in fields(kind):
        (held,) = [one for one in (get_args(hints[each.name]) or (hints[each.name],)) if one is not type(None)][:1]
        if is_dataclass(held):
            found += numbers(held, f"{where}{each.name}.")
        elif hints[each.name] in (int, float):
            found.append(f"{where}{each.name}")
    return found


def test_each_number_of_a_recipe_has_a_range() -> None:
    known = {name for name in numbers(Recipe) if not name.startswith(CHECKED)}
    assert known == {*RANGES, *ELSEWHERE}


@pytest.mark.parametrize("name", [name for name in RANGES if not name.startswith("stages.")])
def test_a_number_out_of_its_range_is_refused_in_words(name: str) -> None:
    section, *inner, key = name.split(".")
    held: dict[str, Any] = {key: -1}
    if section == "cold_start":
        held["demonstrations"] = ["sft.parquet"]
    if inner:
        held = {"path": "some/model", inner[0]: held}
    with pytest.raises(RecipeError, match=rf"^{name} is -1(\.0)?; it must be "):
        to_recipe(values(**{section: held}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0])
def test_what_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(RecipeError, match=r"update\.lr is .*; it must be a number above 0"):
        to_recipe(values(update={"lr": value}))


def test_a_stage_is_named() -> None:
    with pytest.raises(RecipeError, match=r"stages\.steps is 0; it must be 1 or more"):
        to_recipe(values(stages=[{"name": "a", "steps": 0}]))


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ({"tensor_parallel": 3}, "which doesn't divide device.per_node=8: take 1 or 2 or 4 or 8"),
        (
            {"tensor_parallel": 12, "nodes": 2},
            "a divisor of 8, or a multiple of it that divides 16",
        ),
        ({"memory_share": 1.7}, "device.memory_share is 1.7; it must be above 0 and at most 1"),
        ({"workers": 0}, "device.workers is 0; it must be 1 or more"),
    ],
)
def test_devices_that_cant_be_shared_out_are_refused(device: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        to_recipe(values(device=device))


def test_a_replica_may_span_machines() -> None:
    assert to_recipe(values(device={"tensor_parallel": 16, "nodes": 4})).device.tensor_parallel == 16
