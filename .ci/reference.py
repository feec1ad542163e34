"""Writes the pages of `docs/reference/` from the code: `python .ci/reference.py`. A test compares them with it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click

from cleaner_rl.cli import COMMANDS, main
from cleaner_rl.train.recipe.settings import Recipe

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
PACKAGES = ("purify", "logs", "train.trl", "train", "sandbox", "sandbox.client", "rollout", "tasks",
            "evaluate", "resample", "trajectory", "tools", "replay", "view", "trajectory.store", "train.rows",
            "rollout.engines", "rollout.balance")  # fmt: skip
"""What has a page, most asked for first."""
WRITTEN = "Written by `python .ci/reference.py` from {}; change that, not this page.\n"


def module_of(page: str) -> str:
    """Return the module of a page; the sandbox is a distribution of its own."""
    return f"cleaner_{page}" if page.partition(".")[0] == "sandbox" else f"cleaner_rl.{page}"


def cell(text: object) -> str:
    """Text as one cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def commands() -> str:
    """Every command, with its help and its options."""
    lines = ["# Commands\n", WRITTEN.format("the commands themselves")]
    lines += ["`cleaner COMMAND --help` prints the same.\n", "| command | |", "| --- | --- |"]
    lines += [f"| [`{name}`](#cleaner-{name}) | {cell(later.line)} |" for name, later in sorted(COMMANDS.items())]
    for path, command in _walk(main, "cleaner"):
        lines.append(f"\n## {path}\n")
        lines += [_help(command), ""]
        if arguments := [each for each in command.params if isinstance(each, click.Argument)]:
            lines.append(f"Arguments: {', '.join(f'`{(each.name or str()).upper()}`' for each in arguments)}.\n")
        options = [each for each in command.params if isinstance(each, click.Option)]
        if options:
            lines += ["| option | kind | default | |", "| --- | --- | --- | --- |"]
            lines += [_option(each) for each in options]
    return "\n".join(lines) + "\n"


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if path != "cleaner":
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walk(found, f"{path} {name}")


def _help(command: click.Command) -> str:
    text = inspect.cleandoc(command.help or "")
    parts = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            title, *body = paragraph.removeprefix("\b\n").splitlines()
            parts.append(f"{title}\n\n" + textwrap.indent(textwrap.dedent("\n".join(body)), "    "))
        else:
            parts.append(paragraph)
    return "\n\n".join(parts)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "flag" if option.is_flag else option.type.name
    if isinstance(option.type, click.Choice):
        kind = ", ".join(f"`{each}`" for each in option.type.choices)
    kind += ", repeatable" if option.multiple else ""
    shown = option.show_default if isinstance(option.show_default, str) else ""
    if not shown and option.show_default and option.is_flag and option.secondary_opts:
        shown = f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    elif not shown and option.show_default and isinstance(option.default, int | float | str | Path):
        shown = f"`{option.default}`"
    elif not shown and option.show_default and isinstance(option.default, list | tuple):
        shown = ", ".join(f"`{each}`" for each in option.default)
    return f"| {names} | {cell(kind)}{', required' if option.required else ''} | {shown} | {cell(option.help or '')} |"


def api() -> str:
    """List every package with a public face, and what it is for."""
    lines = ["# API reference\n", WRITTEN.format("the packages' docstrings")]
    lines += ["A name is public if a package's `__init__.py` exports it ([which are stable](../../stability.md)).\n"]
    lines += ["| package | |", "| --- | --- |"]
    for package in PACKAGES:
        module = importlib.import_module(module_of(package))
        about = (module.__doc__ or "").split("\n\n")[0]
        lines.append(f"| [`{module_of(package)}`]({package}.md) | {cell(about)} |")
    return "\n".join(lines) + "\n"


def package_page(package: str) -> str:
    """Ask mkdocstrings for one package's public names, with signatures and docstrings."""
    module = importlib.import_module(module_of(package))
    lines = [f"# {module_of(package)}\n", f"::: {module_of(package)}"]
    for name in sorted(getattr(module, "__all__", ())):
        # A module of the same name hides a function from mkdocstrings, so the function is asked for by its own place.
        if find_spec(f"{module_of(package)}.{name}"):
            place = getattr(module, name).__module__
            lines.append(f"\n::: {place}.{name}\n    options: {{show_root_heading: true, show_root_toc_entry: true}}")
    return "\n".join(lines) + "\n"


def recipe() -> str:
    """Every setting of a recipe, section by section."""
    lines = ["# Recipe\n", WRITTEN.format("`cleaner_rl.train.recipe.settings`")]
    lines += ["A recipe is a YAML file ([training](../train.md)). `--set section.key=value` changes a setting.\n"]
    lines += _section(Recipe, "")
    return "\n".join(lines) + "\n"


def _section(kind: type, where: str) -> list[str]:
    words, inner = _words(kind), []
    lines = [f"\n## {where or 'Top level'}\n", cell(inspect.getdoc(kind) or ""), ""]
    lines += ["| key | type | default | |", "| --- | --- | --- | --- |"]
    hints = inspect.get_annotations(kind, eval_str=True)
    for field in dataclasses.fields(kind):
        hint, said, place = hints[field.name], words.get(field.name, ""), f"{where}.{field.name}".lstrip(".")
        section = next((each for each in (hint, *get_args(hint)) if dataclasses.is_dataclass(each)), None)
        if section is not None:
            inner += _section(section, place)
        if section is hint:
            continue
        if section is not None:
            kind_of = "a list" if get_origin(hint) is list else "a section"
            shown = f"[{kind_of}](#{place.replace('.', '')})"
        elif inspect.isclass(hint) and issubclass(hint, Enum):
            shown, said = ", ".join(f"`{each.value}`" for each in hint), said or _choices(hint)
        else:
            shown = _bounded(hint) if get_origin(hint) is Annotated else f"`{cell(field.type)}`"
        lines.append(f"| `{field.name}` | {shown} | {cell(_default(field))} | {cell(said)} |")
    return lines + inner


def _bounded(hint: Any) -> str:
    """A number with its bounds."""
    kind, bounds = get_args(hint)
    words = {"ge": "at least", "gt": "above", "le": "at most"}
    said = [f"{word} {getattr(bounds, name)}" for name, word in words.items() if getattr(bounds, name) is not None]
    return f"`{kind.__name__}`, {' and '.join(said)}"


def _default(field: dataclasses.Field[Any]) -> str:
    """A default, written as in a recipe."""
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return "required"
    if value is None or value in ([], {}):
        return "none"
    return f"`{value.value if isinstance(value, Enum) else json.dumps(value)}`"


def _choices(kind: type[Enum]) -> str:
    """What an enum chooses, and what each choice means if its source says so."""
    words = _words(kind)
    each = [f"`{choice.value}`: {words[choice.name]}" for choice in kind if choice.name in words]
    return " ".join([inspect.getdoc(kind) or "", *each])


def _words(kind: type) -> dict[str, str]:
    """The docstring behind each field or choice in the source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            continue
        named = before.targets[0] if isinstance(before, ast.Assign) else getattr(before, "target", None)
        if isinstance(named, ast.Name):
            found[named.id] = str(after.value.value)
    return found


PAGES: dict[str, Callable[[], str]] = {"commands.md": commands, "recipe.md": recipe, "api/index.md": api}
PAGES |= {f"api/{package}.md": partial(package_page, package) for package in PACKAGES}

if __name__ == "__main__":
    (FOLDER / "api").mkdir(parents=True, exist_ok=True)
    for page, write in PAGES.items():
        (FOLDER / page).write_text(write())
