"""Options that several commands have: one name, one kind, one meaning."""

from __future__ import annotations

import math
from typing import Any

import click

COUNT = click.IntRange(min=1)
PORT = click.IntRange(0, 65_535)


class Seconds(click.FloatRange):
    """A number of seconds, positive and finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, if it is one."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{seconds} is not a finite number of seconds.", param, ctx)
        return seconds


SECONDS = Seconds()
sandbox = click.option(
    "--sandbox",
    multiple=True,
    metavar="URL",
    help="Address of a sandbox node; repeatable. Default: one is started here.",
)
sandbox_token = click.option(
    "--sandbox-token", envvar="CLEANER_SANDBOX_TOKEN", help="Token for the nodes of --sandbox, if they need one."
)
ray_address = click.option(
    "--ray-address", metavar="ADDRESS", help="Address of a Ray cluster. Default: Ray's own choice."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
