"""`cleaner plugins`: what is installed, whose it is, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from itertools import groupby

import click

from cleaner_rl.cli.options import as_json
from cleaner_rl.cli.words import show
from cleaner_rl.doctor import PluginCheck, check_plugins


@click.command()
@as_json
def plugins(as_json: bool) -> None:
    """List call formats, similarity measures, graders, data sets, log formats and tools, and check those of others.

    Those of other packages are loaded; one that can't be is listed with the reason, and the command exits with 1. Tools
    may need a prompt's options, so they are only listed.

    \b
    Examples:
      cleaner plugins
      cleaner plugins --json
    """
    found = check_plugins()
    broken = sum(bool(each.problem) for each in found)
    if as_json:
        show(json.dumps({"plugins": [_to_json(each) for each in found], "broken": broken}))
    else:
        for group, some in groupby(found, lambda each: each.group):
            show(group)
            for each in some:
                show(f"  {each.name:18} {each.package}{' · ' if each.problem else ''}{each.problem}")
    sys.exit(1 if broken else 0)


def _to_json(check: PluginCheck) -> dict[str, str]:
    return {
        "group": check.group,
        "name": check.name,
        "package": check.package,
        "from": check.value,
        "problem": check.problem,
    }
