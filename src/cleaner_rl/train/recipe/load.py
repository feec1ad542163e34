"""Reads a recipe from YAML, typed and strict: an unknown key is an error that names the nearest known one.

Texts may contain environment variables (`$DATA/train.parquet`). Paths of files that exist here become absolute, because
on an existing Ray cluster verl's processes have another working directory than the command.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml

from cleaner_rl.train.recipe.settings import Recipe, RecipeError

PLACES = {
    "model": ("path",),
    "tasks": ("train", "held_out", "prompt"),
    "cold_start": ("demonstrations",),
    "sandbox": ("site", "token_file"),
}
"""The settings that may name files or folders."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads 1e-6 as a number; for YAML 1.1 it is a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_recipe(path: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """Read the recipe of a file, overridden by `settings` such as "batch.prompts=64"."""
    file = Path(path)
    try:
        values = _load(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise RecipeError(f"{file} can't be read: {error.strerror}") from None
    if not isinstance(values, dict):
        raise RecipeError(f"{file} holds no settings; a recipe has at least name, method, model and tasks")
    for setting in settings:
        _set(values, setting)
    values = {key: _expanded(value) for key, value in values.items()}
    for section, keys in PLACES.items():
        held = values.get(section)
        if isinstance(held, dict):
            held |= {key: _whole(held[key]) for key in keys if key in held}
    return to_recipe(values)


def to_recipe(values: Mapping[str, object]) -> Recipe:
    """Make a recipe of plain values; raise `RecipeError` if they aren't one."""
    _check_keys(values, Recipe, "")
    try:
        return msgspec.convert(values, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(_plain(str(error))) from None


def to_values(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values, which `to_recipe` reads again."""
    values = msgspec.to_builtins(recipe)
    assert isinstance(values, dict)
    return values


def _load(text: str, where: str) -> object:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where} isn't valid YAML: {error}") from None


def _expanded(value: object) -> object:
    """Return the values with environment variables expanded, `$NAME` or `${NAME}`."""
    if isinstance(value, dict):
        return {key: _expanded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_expanded(each) for each in value]
    if not isinstance(value, str):
        return value
    text = os.path.expandvars(value)
    if left := re.search(r"\$\{?(\w+)", text):
        raise RecipeError(
            f"'{value}' needs the environment variable {left[1]}, which isn't set; "
            "export it, or override the setting with --set"
        )
    return text


def _whole(named: object) -> object:
    """Return the absolute path of what exists here; names on the hub, names of prompts and addresses stay."""
    if isinstance(named, list):
        return [_whole(each) for each in named]
    if not isinstance(named, str) or not named:
        return named
    path = Path(named).expanduser()
    return str(path.absolute()) if path.exists() else named


def _set(values: dict[str, Any], setting: str) -> None:
    name, equals, text = setting.partition("=")
    if not equals or not name:
        raise RecipeError(f"'{setting}' sets nothing; write --set section.key=value")
    *sections, last = name.split(".")
    if sections[:1] == ["verl"]:  # its keys are verl's, dotted or not
        sections, last = ["verl"], name.removeprefix("verl.")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise RecipeError(f"'{name}' can't be set: '{section}' isn't a section")
    values[last] = _load(text, f"the value of {name}")


def _check_keys(values: Mapping[str, object], kind: type, where: str) -> None:
    """Raise for the first key that `kind` doesn't have, or value that isn't one of a setting's choices."""
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            nearest = get_close_matches(str(key), hints, 1)
            advice = f"did you mean '{where}{nearest[0]}'?" if nearest else f"it can hold: {', '.join(hints)}"
            raise RecipeError(f"there is no setting '{where}{key}'; {advice}")
        choices = hints[key] if isinstance(hints[key], type) and issubclass(hints[key], StrEnum) else None
        if choices is not None and value not in set(choices):
            raise RecipeError(f"{where}{key} is '{value}'; it can be {', '.join(choices)}")
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hints[key]):
            _check_keys(value, hints[key], f"{where}{key}.")


def _plain(message: str) -> str:
    """Rewrite msgspec's message without its notation: "Expected `int`, got `str` - at `$.batch.prompts`"."""
    what, _, where = message.partition(" - at `$")
    where = where.strip("`").lstrip(".")
    what = what.replace("`", "'")
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what[:1].lower() + what[1:]
