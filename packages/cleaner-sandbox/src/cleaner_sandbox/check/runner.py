"""Runs attacks against a target, one after the other in each runner, and judges what came of them.

A runner attacks a node with a single slot, so that "the run after" really is the next one in the same slot. Several
work side by side. Of each attack a runner asks: was the verdict right, did it come in time, did a secret leak, was the
host harmed, was the next run unaffected?

Limits: whether a process or file was left is seen only on the node's own machine, for nodes started here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cleaner_sandbox import TierError, descendants
from cleaner_sandbox.check.attack import PRELUDE, Attack, fill
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.protocol import Cell, CellOutcome, Language, RunOutcome, RunRequest, SessionRequest
from cleaner_sandbox.protocol.results import RunResult, RunStatus

CANARY = """
import builtins, gc, json, math, os, random, resource, signal, sys, threading
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
names = (resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE)
limits = [resource.getrlimit(name) for name in names]
print(json.dumps([
    sum(range(10)), random.random(), math.pi, sorted(os.listdir('.')), sorted(os.environ), limits,
    os.umask(0o22), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.getpriority(os.PRIO_PROCESS, 0),
    threading.active_count(),
    len(sys.modules), sys.path[0] == os.getcwd(), sys.path[1:], sys.getrecursionlimit(), len(vars(builtins)),
    sys.stdin.read(),
    [n for n in range(256) if is_open(n)], gc.isenabled(),
    sorted(os.listdir('/tmp')) if os.environ['HOME'].startswith('/box') else [],
]))
"""
"""Says all that a run can easily see of its surroundings: it has to say the same after any attack."""

STILL = "import time; time.sleep(0.2)"
SETTLE_LOOKS = 40
GROWTH_BYTES = 160 << 20
"""More than any node may grow by while it serves one attack; a flood that is buffered whole is seen by this."""


class TargetSession(Protocol):
    """A session of a target."""

    async def run(self, cell: Cell | str) -> CellOutcome:
        """Run one cell."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class Target(Protocol):
    """What can run programs: a node, or something with the same methods."""

    async def run(self, request: RunRequest) -> RunOutcome:
        """Run one program."""
        ...

    async def open_session(self, request: SessionRequest | None = None) -> TargetSession:
        """Open a session."""
        ...


@dataclass(slots=True)
class AttackVerdict:
    """Says what one attack achieved; empty lists mean that it was contained."""

    attack: Attack
    status: RunStatus | None = None
    seconds: float = 0.0
    escaped: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def contained(self) -> bool:
        """Return whether nothing went wrong."""
        return not (self.escaped or self.leaked or self.wrong)


class AttackRunner:
    """Attacks one target, one attack at a time."""

    def __init__(self, target: Target, honeypots: Honeypots, pids: Callable[[], Iterable[int]] | None = None) -> None:
        self._target = target
        self._honeypots = honeypots
        self._pids = pids
        """The target's own long-lived processes; None if they can't be seen from here."""
        self._canary = ""
        self._processes = 0

    async def start(self) -> None:
        """Note how a run that nobody has attacked looks."""
        outcome = await self._target.run(RunRequest(CANARY))
        if outcome.result.status is not RunStatus.OK:
            raise RuntimeError(f"the target can't run a harmless program: {outcome.result}")
        self._canary = outcome.result.output
        if self._pids is not None:
            self._processes = await self._usual_processes()

    async def attack(self, attack: Attack) -> AttackVerdict:
        """Run one attack with all that belongs to it, and judge it."""
        verdict = AttackVerdict(attack)
        nonce = f"cc{secrets.token_hex(5)[:9]}"
        values = self._honeypots.values | {
            "NONCE": nonce,
            "KEY": str(secrets.randbelow(1 << 30) + 1),
            "REQUEST": f"request-{nonce}",
        }
        self._honeypots.expose(nonce)
        resident = _resident()
        if attack.before is not None and attack.cells is None:
            await self._target.run(_plain(attack.before, values))
        beside = None
        if attack.beside is not None:
            beside = asyncio.create_task(self._target.run(_plain(attack.beside, values)))
            await asyncio.sleep(0.1)
        outcome = await self._main(attack, values, verdict)
        if beside is not None and (await beside).result.status is not RunStatus.OK:
            verdict.escaped.append("harmed a run of another caller")
        was_tried = outcome is not None or attack.cancel_after is not None
        if attack.after is not None and was_tried:
            await self._after(attack.after, values, verdict)
        if outcome is not None:
            self._judge(attack, outcome, verdict)
        await self._host(nonce, resident, verdict)
        return verdict

    async def _main(self, attack: Attack, values: dict[str, str], verdict: AttackVerdict) -> RunOutcome | None:
        request = RunRequest(
            code=fill(attack.program if attack.raw else attack.prelude + attack.program, values),
            stdin=attack.stdin,
            limits=attack.limits,
            environment=attack.environment,
            echo_last_expression=attack.echo,
            seed=attack.seed,
            files={fill(path, values): data for path, data in attack.files.items()},
            fetch=tuple(fill(path, values) for path in attack.fetch),
            request_id=values["REQUEST"],
            language=attack.language,
        )
        doing = self._target.run(request) if attack.cells is None else self._in_session(attack, request, values)
        began = time.monotonic()
        patience = attack.cancel_after or attack.wall * 3 * _slowness()
        try:
            outcome = await asyncio.wait_for(doing, patience)
        except TimeoutError:
            if attack.cancel_after is None:
                verdict.wrong.append(f"no answer within {patience:g} s")
            return None
        except TierError:  # it has no sessions
            return None
        except Exception as error:
            verdict.wrong.append(f"no answer but {type(error).__name__}: {error}"[:200])
            return None
        if attack.language is Language.BASH and outcome.result.status is RunStatus.REFUSED:  # it has no shell
            return None
        verdict.seconds = time.monotonic() - began
        verdict.status = outcome.result.status
        bound = attack.wall * _slowness()
        if verdict.seconds > bound:
            verdict.wrong.append(f"answered after {verdict.seconds:.1f} s, not within {bound:.1f}")
        return outcome

    async def _in_session(self, attack: Attack, request: RunRequest, values: dict[str, str]) -> RunOutcome:
        """The request as the last cell of a session, while another caller's is open."""
        wanted = SessionRequest(environment="bare", limits=attack.limits, language=attack.language)
        async with contextlib.AsyncExitStack() as stack:
            if attack.before is not None:
                other = await self._target.open_session(wanted)
                stack.push_async_callback(other.close)
                await other.run(fill(attack.before, values))
            session = await self._target.open_session(wanted)
            stack.push_async_callback(session.close)
            for cell in attack.cells or ():
                await session.run(fill(attack.prelude + cell, values))
            return (await session.run(Cell(request.code, stdin=request.stdin))).run

    def _judge(self, attack: Attack, outcome: RunOutcome, verdict: AttackVerdict) -> None:
        result = outcome.result
        if result.status not in attack.right:
            wanted = ", ".join(sorted(attack.right))
            verdict.wrong.append(f"{result.status}, not {wanted}: {result.explanation or result.exception}"[:200])
        if attack.output is not None and result.status is RunStatus.OK:
            shown = attack.output[: len(result.output)] if result.output_length is not None else attack.output
            length = result.output_length or len(result.output)
            if result.output != shown or length != len(attack.output):
                verdict.wrong.append(f"other output: {result.output[:80]!r}")
        text = _everything(result, outcome)
        if self._honeypots.marker in text:
            verdict.escaped.append(text.partition(self._honeypots.marker)[2].partition("\n")[0].strip() or "succeeded")
        verdict.leaked += self._honeypots.leaks(text)

    async def _after(self, program: str, values: dict[str, str], verdict: AttackVerdict) -> None:
        try:
            outcome = await asyncio.wait_for(self._target.run(_plain(PRELUDE + program, values)), 20)
        except Exception as error:
            verdict.escaped.append(f"the next run failed: {type(error).__name__} {error}"[:200])
            return
        result = outcome.result
        if result.status is not RunStatus.OK:
            verdict.escaped.append(
                f"the next run failed: {result.status} {result.exception or result.explanation}"[:200]
            )
        if self._honeypots.marker in result.output:
            verdict.escaped.append("the next run found what was left")

    async def _host(self, nonce: str, resident: int, verdict: AttackVerdict) -> None:
        try:
            outcome = await asyncio.wait_for(self._target.run(RunRequest(CANARY)), 30)
        except Exception as error:
            verdict.escaped.append(f"the next run failed: {type(error).__name__} {error}"[:200])
        else:
            if outcome.result.output != self._canary:
                verdict.escaped.append(f"the next run is not as before: {_difference(outcome.result, self._canary)}")
        if _resident() - resident > GROWTH_BYTES:
            verdict.escaped.append("the node's memory grew")
        if self._honeypots.reached(nonce):
            verdict.escaped.append("reached a listener outside")
        verdict.escaped += self._honeypots.damage(nonce)
        verdict.escaped += [f"left {path}" for path in self._honeypots.traces(nonce)]
        for _ in range(SETTLE_LOOKS):
            if (left := self._count() - self._processes) <= 0:
                break
            await asyncio.sleep(0.05)
        else:
            verdict.escaped.append(f"left {left} processes")
            await asyncio.sleep(5)  # attacks end by themselves; the next one shall not be blamed

    async def _usual_processes(self) -> int:
        """As they are during a run: between two, on a busy machine, the next one has yet to be forked."""
        running = asyncio.ensure_future(self._target.run(RunRequest(STILL)))
        most = self._count()
        while not running.done():
            await asyncio.sleep(0.02)
            most = max(most, self._count())
        await running
        return most

    def _count(self) -> int:
        """Processes below the target's own, these included."""
        return len(descendants(self._pids())) if self._pids is not None else 0


async def run_attacks(
    runners: Sequence[AttackRunner], attacks: Sequence[Attack], done: Callable[[AttackVerdict], None]
) -> list[AttackVerdict]:
    """Share the attacks among the runners: the first, of two slots, gets those that need two. `done` hears of each."""
    order = {attack.name: number for number, attack in enumerate(attacks)}
    waiting = sorted(attacks, key=lambda attack: attack.limits.wall_seconds)  # the longest, at the end, go first
    verdicts: list[AttackVerdict] = []

    async def work(runner: AttackRunner, first: bool) -> None:
        while True:
            suited = [each for each in waiting if (each.beside is not None) == first]
            if not suited:
                return
            chosen = suited[-1]
            waiting.remove(chosen)
            verdicts.append(await runner.attack(chosen))
            done(verdicts[-1])

    async with asyncio.TaskGroup() as group:
        for number, runner in enumerate(runners):
            group.create_task(work(runner, number == 0))
    return sorted(verdicts, key=lambda verdict: order[verdict.attack.name])


def _plain(program: str, values: dict[str, str]) -> RunRequest:
    return RunRequest(fill(program, values), stdin=values["OTHER"])


def _everything(result: RunResult, outcome: RunOutcome) -> str:
    """All text that a caller gets to see."""
    exception = result.exception
    parts = [result.output, result.stderr, result.explanation]
    if exception is not None:
        parts += [exception.type, exception.message, exception.traceback]
    parts += [data.decode("utf-8", "replace") for data in outcome.files.values()]
    return "\n".join(parts)


def _difference(result: RunResult, expected: str) -> str:
    if result.status is not RunStatus.OK:
        return f"{result.status} {result.exception or result.explanation}"[:200]
    at = next((i for i, (a, b) in enumerate(zip(result.output, expected, strict=False)) if a != b), 0)
    return f"{result.output[max(0, at - 40) : at + 40]!r} was {expected[max(0, at - 40) : at + 40]!r}"


def _slowness() -> float:
    """How many times longer things take because others want the CPUs, too."""
    return min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _resident() -> int:
    """Bytes that this process holds: the node's own, if it runs here."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
