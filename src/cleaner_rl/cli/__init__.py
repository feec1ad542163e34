"""The command `cleaner`: thin, one group; each room's commands join it as the room is built."""

from __future__ import annotations

import click

from cleaner_rl import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cleaner")
def main() -> None:
    """Train tool-using language models on clean trajectories."""
