from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Meta

from cleaner_rl.train import Recipe, RecipeError, to_recipe
from tests.train.recipes import values

ELSEWHERE = {"seed": "any number is a seed"}
"""Numbers without bounds, each with the reason."""
CHECKED = ("purify.", "roc.")
"""Sections that are checked by the classes that they become."""


def numbers(kind: Any = Recipe, where: str = "") -> dict[str, Meta | None]:
    """Return the settings that are numbers, by their dotted keys, with their bounds."""
    found: dict[str, Meta | None] = {}
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint, name = hints[each.name], f"{where}{each.name}"
        bounds = get_args(hint)[1] if get_origin(hint) is Annotated else None
        held = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        if held is not None:
            found |= numbers(held, f"{name}.")
        elif hint in (int, float) or bounds is not None:
            found[name] = bounds
    return found


BOUNDED = [name for name, bounds in numbers().items() if bounds is not None]


def test_each_number_of_a_recipe_has_bounds() -> None:
    assert {name for name, bounds in numbers().items() if bounds is None and not name.startswith(CHECKED)} == {
        *ELSEWHERE
    }


@pytest.mark.parametrize("name", [name for name in BOUNDED if not name.startswith("stages.")])
def test_a_number_out_of_its_bounds_is_refused_in_words(name: str) -> None:
    section, key = name.split(".")
    with pytest.raises(RecipeError, match=rf"^{name} is -1; it must be .*(more|above|less)"):
        to_recipe(values(**{section: {key: -1}}))


@pytest.mark.parametrize("value", [float("nan"), 0])
def test_what_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(RecipeError, match=r"sandbox\.cpu_seconds is .*; it must be above 0"):
        to_recipe(values(sandbox={"cpu_seconds": value}))


def test_a_stage_is_named() -> None:
    with pytest.raises(RecipeError, match=r"stages\[0\]\.steps: it must be 1 or more"):
        to_recipe(values(stages=[{"name": "a", "steps": 0}]))
