"""`cleaner demo`: a failure, repaired live, as one page. It needs nothing but the core, no model and no network."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import click

from cleaner_rl.cli.demo_script import SCENES, NumberGrader, Scene, ScriptedModel
from cleaner_rl.cli.words import said
from cleaner_rl.purify import PurifyPolicy, SplicePolicy
from cleaner_rl.rollout import Purifier, StatelessToolbox, finish, rollout
from cleaner_rl.rollout.toolbox import Sandbox, Session
from cleaner_rl.sandbox import BARE, Node, NodeConfig, RunOutcome, RunRequest, SessionRequest, TierError, ZygoteError
from cleaner_rl.tasks import load_prompt
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult
from cleaner_rl.trajectory import Granularity, Key, Seeds, TextSpan, Trajectory, Turn, residual_tally
from cleaner_rl.view.export import address_in_page, page_from

SECONDS = 10.0
KINDS = {
    Granularity.GRAFT: "graft: its reasoning stays, its program is replaced",
    Granularity.REPLACE: "replacement: its reasoning and its program are replaced",
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
    click.echo(f"\nFailed calls that are left to learn from: {left}. What was there instead is kept beside it:")
    click.echo(f"  {out.resolve()} ({out.stat().st_size >> 10} kB, needs no server)")
    click.echo("Next: `cleaner doctor` says what this machine can do, `cleaner --help` what else there is.")
    address = f"{out.resolve().as_uri()}#/trajectory?id={quote(address_in_page(0), safe='')}"
    if opens and not webbrowser.open(address):
        click.echo("No browser was found here: open the page yourself.", err=True)


async def _play() -> list[Trajectory[TextSpan]]:
    async with _sandbox() as sandbox:
        return [await _one(scene, sandbox) for scene in SCENES]


async def _one(scene: Scene, sandbox: Sandbox) -> Trajectory[TextSpan]:
    prompt, task = load_prompt("fenced"), scene.task
    model, toolbox = ScriptedModel(scene.says, prompt), StatelessToolbox(sandbox)
    purifier = Purifier(policy=PurifyPolicy(splice=SplicePolicy(threshold=0.6)))
    key, seeds = Key("demo", 0, task.id, 0), Seeds(0, task.id, 0)
    rolled = await rollout(task, key, prompt=prompt, model=model, toolbox=toolbox, seeds=seeds, purifier=purifier)
    graded = await finish(
        rolled, task, model=model, toolbox=toolbox, graders={"number": NumberGrader()}, seeds=seeds, purifier=purifier
    )
    _tell(graded)
    return graded


def _tell(trajectory: Trajectory[TextSpan]) -> None:
    name = trajectory.key.task
    if not trajectory.usable:
        raise click.ClickException(f"{name}: the sandbox broke: {trajectory.extra.get('fault')}")
    for turn in trajectory.turns:
        if turn.edit is None:
            continue
        failed, *attempts = turn.edit.original
        click.echo(f"{name:14} failed    {_error(failed)}")
        for attempt in attempts:
            if attempt.failed:
                click.echo(f"{'':14} attempt   {_error(attempt)}")
        click.echo(
            f"{'':14} repaired  {KINDS.get(turn.edit.granularity, 'no')} (similarity {turn.edit.similarity:.2f})"
        )
    outcome = "right" if trajectory.success else "wrong"
    click.echo(f"{'':14} answered  {trajectory.extra.get('answer')}, {outcome}")


def _error(turn: Turn[TextSpan]) -> str:
    error = turn.results[0].exception
    return turn.results[0].explanation if error is None else f"{error.type}: {error.message}"


@asynccontextmanager
async def _sandbox() -> AsyncIterator[Sandbox]:
    """The real one; where there can be none, plain processes, for these few programs of our own."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            node = await stack.enter_async_context(Node(NodeConfig(slots=1, preload=(BARE,))))
        except (TierError, ZygoteError, OSError) as error:
            click.echo(f"No sandbox here: {error}.")
            click.echo("The demo goes on in plain processes: its programs are its own. `cleaner doctor` says more.\n")
            yield PlainProcesses()
            return
        click.echo(f"A scripted model, the real loop, the real sandbox (isolation {node.status.tier.name}).\n")
        yield node


class PlainProcesses:
    """A stand-in for a sandbox that isolates nothing: for programs that we wrote ourselves, and for no others."""

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run a program in an interpreter of its own."""
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-c", request.code],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if not ran.returncode:
            return RunOutcome(ToolResult(Status.OK, ran.stdout))
        kind, _, message = ran.stderr.strip().splitlines()[-1].partition(": ")
        exception = ExceptionInfo(kind, message, traceback=ran.stderr)
        return RunOutcome(ToolResult(Status.ERROR, ran.stdout, exception=exception))

    async def open_session(self, request: SessionRequest | None = None) -> Session:
        """There are none."""
        raise NotImplementedError
