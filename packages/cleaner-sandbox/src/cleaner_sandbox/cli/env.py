"""`cleaner-sandbox env`: environments, built once, that nodes offer to runs and sessions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from cleaner_sandbox import (
    Environment,
    build_environment,
    built_environments,
    environments_folder,
    find_environments,
)
from cleaner_sandbox.cli import options
from cleaner_sandbox.cli.words import said, show

folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=environments_folder(),
    show_default=True,
    help="Where environments are; not below /tmp.",
)


@click.group()
def env() -> None:
    """Build environments: packages and files that runs and sessions name.

    \b
    Example:
      cleaner-sandbox env build web requirements.txt
      cleaner-sandbox serve --env web &
      curl -s --retry 9 --retry-connrefused localhost:8089/v1/run -d '{"code": "import requests", "environment": "web"}'
    """


@env.command()
@click.argument("name")
@click.argument("requirements", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--base", type=click.Path(exists=True, path_type=Path), help="Folder or tar file that working folders begin with."
)
@folder_option
@options.as_json
def build(name: str, requirements: Path | None, base: Path | None, folder: Path, as_json: bool) -> None:
    """Build an environment of packages, files or both, with this interpreter's pip.

    A build that fails leaves nothing behind. Programs have no network: whatever they need is built in.

    \b
    Examples:
      cleaner-sandbox env build web requirements.txt
      cleaner-sandbox env build repo-17 --base ./checkout      # with the packages of the node's usual environment
      cleaner-sandbox env build repo-18 requirements.txt --base checkout.tar.gz
    """
    try:
        made = build_environment(name, requirements, base, folder)
    except (OSError, ValueError) as error:
        raise click.ClickException(said(error)) from None
    if as_json:
        show(json.dumps(_described(made)))
    else:
        _show(made)


@env.command("list")
@folder_option
@options.as_json
def list_(folder: Path, as_json: bool) -> None:
    """List the environments that were built.

    \b
    Example:
      cleaner-sandbox env list --json
    """
    found: list[Environment] = []
    for name in built_environments(folder):
        try:
            found += find_environments([name], folder)
        except ValueError as error:
            show(f"{name}: {error}", err=True)
    if as_json:
        show(json.dumps({"environments": [_described(each) for each in found]}))
    else:
        for each in found:
            _show(each)


@env.command()
@click.argument("name")
@folder_option
def remove(name: str, folder: Path) -> None:
    """Remove an environment. End the nodes that offer it first.

    \b
    Example:
      cleaner-sandbox env remove web
    """
    if name not in built_environments(folder):
        raise click.ClickException(f"there is no environment '{name}' in {folder}: see cleaner-sandbox env list")
    try:
        shutil.rmtree(folder / name)
    except OSError as error:
        raise click.ClickException(said(error)) from None
    show(f"removed {name}")


def _described(environment: Environment) -> dict[str, object]:
    return {"name": environment.name, "packages": environment.packages, "files": environment.files is not None}


def _show(environment: Environment) -> None:
    holds = ", ".join(environment.packages) or "no packages of its own"
    show(f"{environment.name}: {holds}{'' if environment.files is None else '; with files'}")
