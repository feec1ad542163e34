"""`python -m benchmarks.hosts [FOLDER]`: a run across two hosts, of which one loses its engine, and then all.

    step 2    the engine of the second host is killed: the run ends with the reason; the same command goes on
    step 3    the second host disappears: the run ends with the reason; the host comes back, the same command goes on

FSDP2 trains across both hosts over gloo; each has a vLLM replica, behind our router, and a sandbox node. Every step
must have been trained once, on whole groups, on no fault and on no task twice, and every row of the updates must be
that of the store, with the log-probs that the actor gives.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.hosts.run import measure
from benchmarks.record import save as save_record

STEPS = 4


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--patience", default=3600.0, show_default=True, help="Seconds after which a run that hangs has failed.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.option("--save", type=click.Path(path_type=Path), help="Keep the figures in this file.")
def main(folder: Path | None, patience: float, as_json: bool, save: Path | None) -> None:
    """Train across two hosts on a FOLDER of `benchmarks.toy`, or on the smallest that there is.

    Needs the engines and root; takes a quarter of an hour.
    """
    with ExitStack() as stack:
        world = folder
        if world is None:
            from benchmarks.toy.smallest import make

            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts-world-", dir="/var/tmp"))
            world = make(Path(place) / "smallest")
        figures = measure(world, STEPS, faults=True, patience=patience)
    if save is not None:
        save_record(save, figures, {"world": world.name, "steps": STEPS})
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
