"""The suite judges rightly: its data is sound, and it sees every kind of breach in targets that have one."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from cleaner_sandbox import Language, RunOutcome, RunRequest, SessionRequest
from cleaner_sandbox.check import ATTACKS, Attack, AttackClass, Report
from cleaner_sandbox.check.attack import PRELUDE, fill
from cleaner_sandbox.check.honeypots import Honeypots
from cleaner_sandbox.check.runner import CANARY, AttackRunner, AttackVerdict
from cleaner_sandbox.protocol.results import RunResult, RunStatus
from tests.serving import until

PROBE = Attack("probe", AttackClass.ESCAPE, "print(1)")


def test_there_are_enough_attacks_of_every_class_under_names_of_their_own() -> None:
    assert len(ATTACKS) >= 120
    assert max(Counter(attack.name for attack in ATTACKS).values()) == 1
    assert {attack.kind for attack in ATTACKS} == set(AttackClass)


def test_no_attack_may_end_as_a_fault() -> None:
    assert [attack.name for attack in ATTACKS if RunStatus.FAULT in attack.right] == []


def test_programs_are_complete_and_compile() -> None:
    with Honeypots() as honeypots:
        values = honeypots.values | {"NONCE": "cc12345", "KEY": "12345", "REQUEST": "x"}
    for attack in ATTACKS:
        parts = (attack.program, attack.before, attack.beside, attack.after, *(attack.cells or ()))
        for part in parts:
            text = fill(PRELUDE + (part or ""), values)
            assert not re.search("(?<!@)@[A-Z_]{2,}@(?!@)", text), attack.name
            if attack.kind is not AttackClass.INPUT_OUTPUT and attack.language is Language.PYTHON:
                compile(text, attack.name, "exec")
        if attack.language is Language.BASH:
            text = fill("\n".join([attack.prelude + attack.program, *(attack.cells or ())]), values)
            subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=True)


def test_no_program_holds_a_secret_or_the_whole_marker() -> None:
    with Honeypots() as honeypots:
        texts = [fill(attack.prelude + attack.program, honeypots.values) for attack in ATTACKS]
        assert [text for text in texts if honeypots.marker in text or honeypots.leaks(text)] == []


def test_plants_leave_nothing() -> None:
    with Honeypots() as honeypots:
        places = [honeypots.home, honeypots.temporary, Path("/dev/shm") / honeypots.name]
        assert all(place.exists() for place in places)
        honeypots.expose("nonce")
        assert honeypots.damage("nonce") == []
    assert not any(place.exists() for place in places)
    assert "CLEANER_CHECK_TOKEN" not in os.environ


def test_the_planted_process_ends_with_a_check_that_is_killed() -> None:
    program = (
        "import signal\nfrom cleaner_sandbox.check.honeypots import Honeypots\n"
        "plants = Honeypots().__enter__()\n"
        "print(plants.home, plants.temporary, plants.name, plants.values['VICTIM'], flush=True)\nsignal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as check:
        assert check.stdout is not None
        home, temporary, name, victim = check.stdout.readline().split()
        pidfd = os.pidfd_open(int(victim))
        check.kill()
    try:
        assert select.select([pidfd], [], [], 60)[0] == [pidfd]
    finally:
        os.close(pidfd)
        for folder in (home, temporary):
            shutil.rmtree(folder)
        (Path("/dev/shm") / name).unlink()


class Imitation:
    """Answers as a node would, but for the attack."""

    def __init__(self, answer: Callable[[], RunResult]) -> None:
        self._answer = answer
        self.broken = False

    async def run(self, request: RunRequest) -> RunOutcome:
        if request.code == CANARY:
            return RunOutcome(RunResult(RunStatus.OK, "spoilt" if self.broken else "canary"))
        return RunOutcome(self._answer())

    async def open_session(self, request: SessionRequest | None = None) -> NoReturn:
        raise NotImplementedError


def judged(make: Callable[[Honeypots, list[Imitation]], RunResult], attack: Attack = PROBE) -> AttackVerdict:
    """What the runner says of an attack that is answered like this."""

    async def judge() -> AttackVerdict:
        with Honeypots() as honeypots:
            targets: list[Imitation] = []
            targets.append(Imitation(lambda: make(honeypots, targets)))
            runner = AttackRunner(targets[0], honeypots)
            await runner.start()
            return await runner.attack(attack)

    return asyncio.run(judge())


def test_the_run_that_a_busy_slot_has_yet_to_fork_is_not_left_by_an_attack() -> None:
    class Slow(Imitation):
        async def run(self, request: RunRequest) -> RunOutcome:
            child = await asyncio.create_subprocess_exec("sleep", "60")
            await asyncio.sleep(0.2)
            child.kill()
            await child.wait()
            return await super().run(request)

    async def judge() -> AttackVerdict:
        with Honeypots() as honeypots:
            runner = AttackRunner(Slow(lambda: RunResult(RunStatus.OK)), honeypots, lambda: [os.getpid()])
            await runner.start()
            later = await asyncio.create_subprocess_exec("sleep", "60")  # the waiting run, forked at last
            try:
                return await runner.attack(PROBE)
            finally:
                later.kill()
                await later.wait()

    assert asyncio.run(judge()).contained


def test_a_low_priority_of_our_own_is_not_what_an_attack_left() -> None:
    (attack,) = (each for each in ATTACKS if each.name == "across_process_state")
    program = f"import os, sys\nos.nice(5)\ndef win(): sys.exit('left')\n{attack.after}"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_contained_attack_is_contained() -> None:
    assert judged(lambda honeypots, targets: RunResult(RunStatus.OK, "blocked")).contained


def test_the_marker_is_an_escape() -> None:
    verdict = judged(lambda honeypots, targets: RunResult(RunStatus.OK, f"x{honeypots.marker} got out\n"))
    assert verdict.escaped == ["got out"]


@pytest.mark.parametrize("where", ["output", "stderr", "explanation"])
def test_a_secret_anywhere_in_the_result_is_a_leak(where: str) -> None:
    def answer(honeypots: Honeypots, targets: list[Imitation]) -> RunResult:
        return RunResult(RunStatus.OK, **{where: f"..{honeypots.secrets['home']}.."})  # type: ignore[arg-type]

    assert judged(answer).leaked == ["home"]


@pytest.mark.parametrize("status", [RunStatus.FAULT, RunStatus.ERROR])
def test_another_status_is_wrong(status: RunStatus) -> None:
    assert judged(lambda honeypots, targets: RunResult(status)).wrong


def test_a_spoilt_next_run_is_an_escape() -> None:
    def answer(honeypots: Honeypots, targets: list[Imitation]) -> RunResult:
        targets[0].broken = True
        return RunResult(RunStatus.OK)

    assert "the next run" in judged(answer).escaped[0]


def test_damage_to_what_was_planted_is_an_escape() -> None:
    def answer(honeypots: Honeypots, targets: list[Imitation]) -> RunResult:
        next(honeypots.home.glob("open-*")).write_text("spoilt")
        return RunResult(RunStatus.OK)

    assert "planted file changed" in judged(answer).escaped[0]


def test_damage_is_blamed_on_nobody_else() -> None:
    def answer(honeypots: Honeypots, targets: list[Imitation]) -> RunResult:
        honeypots.expose("another")
        (honeypots.home / "open-another").write_text("spoilt")
        return RunResult(RunStatus.OK)

    assert judged(answer).escaped == []


def test_a_report_counts_attacks_and_not_their_symptoms() -> None:
    verdicts = [AttackVerdict(PROBE, RunStatus.OK, escaped=["a", "b"]), AttackVerdict(PROBE, RunStatus.OK, wrong=["c"])]
    report = Report("T2", verdicts, {"none": verdicts})
    figures = report.to_json()
    assert [figures[name] for name in ("attacks", "escaped", "leaked", "wrong", "effective_without")] == [2, 1, 0, 1, 2]
    assert report.breached
    assert "escaped  probe: a" in report.as_table()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_somebody_ends_takes_its_plants_away(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cleaner_sandbox", "check", "--no-proof", "--only", "spin*"]
    with subprocess.Popen(command, env={**os.environ, "HOME": str(tmp_path)}, stderr=subprocess.DEVNULL) as check:
        asyncio.run(until(lambda: any(tmp_path.glob(".cleaner-check-*"))))
        check.send_signal(number)
        assert check.wait(60) != 0
    assert list(tmp_path.iterdir()) == []
