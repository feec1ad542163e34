"""Sessions and programs as people write them give what people expect, whatever failed in between.

Each script is run as it is; with a cell that fails and spoils what it can after each of its cells, which must change
nothing; and as one program. `scripts` describes how they are written.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cleaner_sandbox import BARE, Cell, Language, Limits, NodeConfig, RunRequest, RunStatus, SessionRequest, Tier
from cleaner_sandbox.environments import DATA, SCIENCE
from cleaner_sandbox.protocol.results import RunResult
from tests.conftest import Driver, needs
from tests.everyday.scripts import Script, Step, scripts

pytestmark = pytest.mark.timeout(110)

SCRIPTS = {each.name: each for each in scripts()}
PROGRAMS = {
    name: each
    for name, each in SCRIPTS.items()
    if "cells" not in each.options and all(step.status == "ok" for step in each.steps)
}
SPOIL = {
    Language.PYTHON: """
import os, random
for name in os.listdir("."):
    os.rename(name, name + ".spoiled")
os.environ["SPOILED"] = "1"
random.seed(0)
for name in [name for name in globals() if not name.startswith("__")]:
    globals()[name] = None
raise KeyboardInterrupt
""",
    Language.BASH: """
for name in *; do mv "$name" "$name.spoiled"; done
cd /; x=spoiled name=spoiled list=(spoiled); set -u; umask 0
exit 9
""",
}
LIMITS = Limits(cpu_seconds=5.0, wall_seconds=20.0, memory_mb=400, processes=64)


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None or shutil.which(name) is not None


@pytest.fixture(scope="module")
def node() -> Iterator[Driver]:
    """A node with all environments that are installed, which has all its slots in the end."""
    needs(Tier.T2)
    sets = tuple(each for each in (BARE, SCIENCE, DATA) if all(map(_is_there, each.packages)))
    driver = Driver(NodeConfig(slots=2, tier=Tier.T2, environments=sets))
    yield driver
    for _ in range(2 * driver.node.config.slots):
        assert driver.run("print(6 * 7)").output == "42\n"
    status = driver.node.status
    driver.close()
    assert (status.busy, status.faults, status.slot_deaths, status.zygote_deaths) == (0, 0, 0, 0)


def _environment(script: Script) -> str:
    """The name of the smallest environment for a script, which is skipped where something that it needs is missing."""
    if missing := [name for name in script.needs if not _is_there(name)]:
        pytest.skip(f"needs {', '.join(missing)}, which this machine lacks")
    return next((each.name for each in (DATA, SCIENCE) if {*each.packages} & {*script.needs}), BARE.name)


def _limits(script: Script) -> Limits:
    return replace(LIMITS, wall_seconds=float(script.options.get("wall_seconds", LIMITS.wall_seconds)))


def _check(result: RunResult, step: Step) -> None:
    raised = result.exception and result.exception.type
    assert result.status in step.status.split("|"), (step.code, result)
    assert step.exception in (None, raised), (step.code, result)
    assert re.fullmatch(step.output, result.output), (step.code, step.output, result.output)


def _session(node: Driver, script: Script, spoil: str = "") -> None:
    request = SessionRequest(_environment(script), _limits(script), language=script.language)
    session = node.wait(node.node.open_session(request))
    shows = script.options.get("shows")
    for number, step in enumerate(script.steps):
        outcome = node.wait(session.run(Cell(step.code, echo_last_expression="cells" in script.options)))
        _check(outcome.result, step)
        assert outcome.committed == (outcome.result.status is RunStatus.OK)
        if shows is not None and number == 0:
            assert shows in outcome.run.displays[0]
        if spoil:
            assert not node.wait(session.run(spoil)).committed
    node.wait(session.close())


@pytest.mark.parametrize("name", SCRIPTS)
def test_everyday_sessions_give_what_people_expect(node: Driver, name: str) -> None:
    _session(node, SCRIPTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_everyday_sessions_give_the_same_with_failures_between_their_cells(node: Driver, name: str) -> None:
    _session(node, SCRIPTS[name], SPOIL[SCRIPTS[name].language])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_everyday_sessions_give_the_same_as_one_program(node: Driver, name: str) -> None:
    script = PROGRAMS[name]
    whole = Step("\n".join(each.code for each in script.steps), "".join(each.output for each in script.steps))
    request = RunRequest(whole.code, limits=_limits(script), environment=_environment(script), language=script.language)
    _check(node.wait(node.node.run(request)).result, whole)
