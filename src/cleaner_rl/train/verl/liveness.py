"""Notices, from a thread of the trainer's process, when a process that the run can't do without has died.

verl doesn't: while it waits for rollouts, those of a dead engine or a lost machine never end, and its queue waits
minutes for a store that was on the machine. So every part is asked again and again whether it lives. A busy part may
answer late; only Ray's word that it is dead, or the engine's own, counts. The reason is written to the run's folder,
from where `cleaner train` takes it. Then the sampler ends the run, if it gets the chance; else this thread does.

Limits: how soon Ray knows that a machine is lost depends on its health checks (docs/train.md). A machine that hosts
nothing but a part of verl's queue isn't asked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from cleaner_rl.train.verl.plan import lost_file

CHECK_SECONDS = 5.0
"""Seconds between two rounds of questions."""
GRACE_SECONDS = 10.0
"""How long the run has to end by itself after a part was lost."""
LOOK_SECONDS = 2.5 * CHECK_SECONDS
"""How long it takes at most until a part that has died just now is found."""
AGAIN = "Run the same command again"


class PartLostError(RuntimeError):
    """A process that the run needs has died; the message says which, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the run."""

    name: str
    """What it is, with its article."""
    actor: Any
    loss: str
    """What is lost with it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a part says of itself."""

    node: str
    address: str
    trouble: str
    """Why it can't work any more; empty if it can."""


def answer(actor: Any) -> Answer:
    """Say where an actor is and whether its engine, if it has one, still runs; runs in its process."""
    context = ray.get_runtime_context()
    # vLLM's engine is a process of its own, which can die while its server lives.
    engine: Any = getattr(actor, "engine", None)
    trouble = str(engine.dead_error) if getattr(engine, "errored", False) else ""
    return Answer(context.get_node_id(), ray.util.get_node_ip_address(), trouble)


class Liveness:
    """Asks the parts of a run whether they live."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._asked = {part.actor.__ray_call__.remote(answer): part for part in parts}
        self._last: dict[Part, Answer] = {}

    def check(self) -> None:
        """Raise `PartLostError` if a part has died; return at once, whoever hasn't answered yet."""
        answered, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for asked in answered:
            part = self._asked.pop(asked)
            try:
                self._last[part] = found = ray.get(asked)
            except ActorUnavailableError:
                pass  # the connection broke; Ray will say whether the process did
            except RayActorError as error:
                raise self._lost(part, str(error)) from None
            else:
                if found.trouble:
                    raise self._lost(part, found.trouble)
            self._asked[part.actor.__ray_call__.remote(answer)] = part

    def _lost(self, part: Part, why: str) -> PartLostError:
        last, why = self._last.get(part), why.rstrip(".\n")
        where = f" on {last.address}" if last else ""
        if last and any(node["NodeID"] == last.node and not node["Alive"] for node in ray.nodes()):
            return PartLostError(
                f"the machine {last.address} was lost, and with it {part.name}: {part.loss}. Start Ray and the sandbox "
                f"node there again, or on another machine. {AGAIN}. Ray says: {why}"
            )
        return PartLostError(f"{part.name}{where} died, and {part.loss}: {why}. {AGAIN}")


class Watchdog(Thread):
    """Checks the parts of a run until one is lost."""

    def __init__(self, liveness: Liveness, folder: Path) -> None:
        super().__init__(name="cleaner-watchdog", daemon=True)
        self._liveness, self._file = liveness, lost_file(folder)
        self._error: PartLostError | None = None
        self._found = Event()

    def check(self, seconds: float = 0.0) -> None:
        """Raise `PartLostError` if a part was lost, or is found to be within some seconds."""
        if self._found.wait(seconds):
            assert self._error is not None
            raise self._error

    def run(self) -> None:
        """Look after the parts; when one is lost, note it, and end this process if nobody else does."""
        while self._error is None:
            time.sleep(CHECK_SECONDS)
            try:
                self._liveness.check()
            except PartLostError as error:
                self._file.write_text(f"{error}\n", encoding="utf-8")
                self._error = error
                self._found.set()
        time.sleep(GRACE_SECONDS)
        sys.stderr.write(f"{self._error}\n")
        sys.stderr.flush()
        os._exit(1)  # the main thread waits for what is lost
