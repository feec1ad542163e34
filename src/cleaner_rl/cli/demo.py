"""`cleaner demo`: failed calls, repaired while the rollout runs, as one page. It needs the core alone, and no model."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from cleaner_rl.cli.words import said, show
from cleaner_rl.rollout import PlainProcesses, demo_rollouts
from cleaner_rl.trajectory import RepairKind, TextSpan, Trajectory, Turn, residual_tally
from cleaner_rl.view import page_from
from cleaner_sandbox import BARE, Node, NodeConfig, TierError, ZygoteError

KINDS = {
    RepairKind.GRAFT: "graft: its reasoning stays, its program is replaced",
    RepairKind.REPLACE: "replacement: its reasoning and its program are replaced",
}


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("cleaner-demo.html"),
    show_default=True,
    help="The page to write.",
)
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open it in the browser.")
def demo(out: Path, opens: bool) -> None:
    """Watch a failure being repaired: a scripted model, the real loop and sandbox, one page with before and after.

    \b
    Example:
      cleaner demo --no-open --out repaired.html
    """
    trajectories = asyncio.run(_play())
    try:
        out.write_bytes(page_from(trajectories, "cleaner demo"))
    except OSError as error:
        raise click.ClickException(f"the page can't be written: {said(error)}") from None
    left = sum((residual_tally(each).failed for each in trajectories), 0)
    show(f"\nFailed calls left in the training data: {left}. The page keeps what was there before:")
    show(f"  {out.resolve()} ({out.stat().st_size >> 10} kB, needs no server)")
    show("Next: `cleaner doctor` says what this machine can do, `cleaner --help` what else there is.")
    if opens and not webbrowser.open(out.resolve().as_uri()):
        show("No browser was found here: open the page yourself.", err=True)


async def _play() -> list[Trajectory[TextSpan]]:
    made = []
    async with _sandbox() as sandbox:
        async for trajectory in demo_rollouts(sandbox):
            _tell(trajectory)
            made.append(trajectory)
    return made


def _tell(trajectory: Trajectory[TextSpan]) -> None:
    name = trajectory.key.task
    if not trajectory.usable:
        raise click.ClickException(f"{name}: the sandbox had a fault: {trajectory.info.fault}")
    for turn in trajectory.turns:
        if turn.edit is None:
            continue
        failed, *attempts = turn.edit.original
        show(f"{name:14} failed    {_error(failed)}")
        for attempt in attempts:
            if attempt.failed:
                show(f"{'':14} attempt   {_error(attempt)}")
        show(f"{'':14} repaired  {KINDS.get(turn.edit.kind, 'no')} (similarity {turn.edit.similarity:.2f})")
    outcome = "right" if trajectory.success else "wrong"
    show(f"{'':14} answered  {trajectory.info.answer}, {outcome}")


def _error(turn: Turn[TextSpan]) -> str:
    error = turn.results[0].exception
    return turn.results[0].explanation if error is None else f"{error.type}: {error.message}"


@asynccontextmanager
async def _sandbox() -> AsyncIterator[Node | PlainProcesses]:
    """The real one; where there can be none, plain processes, for these few programs of our own."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            node = await stack.enter_async_context(Node(NodeConfig(slots=1, environments=(BARE,))))
        except (TierError, ZygoteError, OSError) as error:
            show(f"No sandbox here: {error}.")
            show("The demo uses plain processes instead, because its programs are known. `cleaner doctor` says more.\n")
            yield PlainProcesses()
            return
        show(f"A scripted model, the real loop, the real sandbox (isolation {node.status.tier.name}).\n")
        yield node
