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
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import yaml

from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.moved import moved
from cleaner_rl.train.recipe.settings import Recipe, RecipeError

PLACES = {
    "model": ("path",),
    "tasks": ("train", "held_out", "prompt"),
    "cold_start": ("data.train_files",),
    "sandbox": ("token_file",),
}
"""The settings that may name files or folders."""


_TWO_VIEWS = {"scope": "successful", "views": "full", "max_logprob_gap": 0.3}
OF_METHODS: Mapping[object, Mapping[str, Mapping[str, object]]] = {
    Method.TWO_VIEWS: {"purify": _TWO_VIEWS},
    Method.TWO_VIEWS_RESCUE: {"purify": _TWO_VIEWS, "rescue": {}},
}
"""Settings that a method brings with it, by section; a recipe can override each."""
_BOUND = re.compile(r"(>=|>|<=) ([\d.]+)$")
_WORDS = {">=": "{} or more", ">": "above {}", "<=": "{} or less"}
RECIPE_BYTES, DEPTH = 1 << 20, 20
"""The bytes of a recipe file, and how deep its values nest. The largest recipe of ours has a hundredth of the bytes."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader, which also reads 1e-6 as a number; for YAML 1.1 that is a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_recipe(path: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """Read the recipe of a file, overridden by `settings` such as "batch.prompts=64".

    Raises:
        RecipeError: The file is not a recipe; the message says why and what to change.

    Examples:
        >>> from cleaner_rl.train import read_recipe
        >>> read_recipe("recipes/saar-4b.yaml", ["run.steps=10"]).run.steps
        10
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(RECIPE_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"{file} can't be read: {error.strerror}") from None
    if len(data) > RECIPE_BYTES:
        raise RecipeError(
            f"{file} has more than {RECIPE_BYTES:,} bytes, so it isn't a recipe; name the YAML file of one"
        )
    values = _load(data, str(file))
    if not isinstance(values, dict):
        raise RecipeError(f"{file} holds no settings; a recipe has at least name, method, model and tasks")
    for setting in settings:
        _set(values, setting)
    values = {key: _expanded(value) for key, value in values.items()}
    for section, keys in PLACES.items():
        held = values.get(section)
        if isinstance(held, dict):
            held |= {key: _whole(held[key]) for key in keys if key in held}
    try:
        return to_recipe(values)
    except RecipeError as error:
        raise RecipeError(f"{file}: {error}") from None


def to_recipe(values: Mapping[str, object]) -> Recipe:
    """Make a recipe of plain values; raise `RecipeError` if they aren't one."""
    if found := moved(values):
        raise RecipeError(found)
    _check_keys(values, Recipe, "")
    try:
        return msgspec.convert(_with_method(values), Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(_plain(str(error), values)) from None


def _with_method(values: Mapping[str, object]) -> dict[str, object]:
    """Fill in what the method brings with it."""
    filled = dict(values)
    for section, settings in OF_METHODS.get(values.get("method"), {}).items():
        held = values.get(section, {})
        if isinstance(held, Mapping):
            filled[section] = {**settings, **held}
    return filled


def to_values(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values, which `to_recipe` reads again."""
    values = msgspec.to_builtins(recipe)
    assert isinstance(values, dict)
    return values


def _load(text: str | bytes, where: str) -> object:
    try:
        depth = 0
        for event in yaml.parse(text):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            line = event.start_mark.line + 1
            if depth > DEPTH:
                raise yaml.YAMLError(f"values nest more than {DEPTH} deep in line {line}, as no setting does")
            if isinstance(event, yaml.AliasEvent):
                # Nine lines of aliases to aliases can stand for a billion values.
                raise yaml.YAMLError(f"write out what the alias *{event.anchor} in line {line} stands for")
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError) as error:
        raise RecipeError(f"{where} can't be read as YAML: {error}") from None


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
        # A choice or a section may be optional, and there are lists of sections.
        kinds = [part for part in (hints[key], *get_args(hints[key])) if isinstance(part, type)]
        choices = next((part for part in kinds if issubclass(part, StrEnum)), None)
        chosen = isinstance(value, str) and choices is not None and value in set(choices)
        if choices is not None and not (chosen or (value is None and NoneType in kinds)):
            raise RecipeError(f"{where}{key} is '{value}'; it can be {', '.join(choices)}")
        for section in filter(dataclasses.is_dataclass, kinds):
            for held in value if isinstance(value, list) else [value]:
                if isinstance(held, Mapping):
                    _check_keys(held, section, f"{where}{key}.")


def _plain(message: str, values: Mapping[str, object]) -> str:
    """Rewrite msgspec's message without its notation: "Expected `int` >= 1 - at `$.batch.prompts`"."""
    what, _, where = message.partition(" - at `$")
    where = where.strip("`").lstrip(".")
    if bound := _BOUND.search(what):
        section, _, key = where.partition(".")
        held = values.get(section)  # a list's section has its number in `where`
        given = f" is {held[key]};" if isinstance(held, Mapping) else ":"
        return f"{where}{given} it must be {_WORDS[bound[1]].format(bound[2].removesuffix('.0'))}"
    what = what.replace("`", "'")
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what[:1].lower() + what[1:]
