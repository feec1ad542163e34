"""Nodes for the tests: one per tier, shared by all tests of a run, driven from synchronous tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from cleaner_sandbox import Limits, Node, NodeConfig, RunOutcome, RunRequest, Tier
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.node.probes import probe
from cleaner_sandbox.protocol.results import RunResult
from tests.profile import EXAMPLES, SHORT

T = TypeVar("T")
DOCS = Path(__file__).parents[3] / "docs"


# Shared machines stall: a test is bounded by its time-out, not by the time of one example.
FULL = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", FULL)
settings.register_profile("ci", FULL, max_examples=EXAMPLES, derandomize=True, database=None)
settings.load_profile("ci" if SHORT else "full")


@pytest.hookimpl(trylast=True)  # after the folders' own, which mark some
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked slow, in the short profile."""
    slow = [item for item in items if SHORT and item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


class Driver:
    """A node and the event loop it lives in."""

    def __init__(self, config: NodeConfig) -> None:
        self._runner = asyncio.Runner()
        self.node = Node(config)
        self._runner.run(self.node.__aenter__())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the node's loop."""
        return self._runner.run(work)

    def outcome(self, code: str, **options: Any) -> RunOutcome:
        """Run one program."""
        names = set(Limits.__dataclass_fields__) - {"files"}  # a request has files, too
        limits = {name: options.pop(name) for name in names & set(options)}
        if limits:
            options["limits"] = Limits(**limits)
        return self.wait(self.node.run(RunRequest(code, **options)))

    def run(self, code: str, **options: Any) -> RunResult:
        """Run one program for its result."""
        return self.outcome(code, **options).result

    def close(self) -> None:
        """End the node."""
        self._runner.run(self.node.__aexit__(None, None, None))
        self._runner.close()


def needs(tier: Tier) -> None:
    """Skip a test where the machine can't isolate that strongly."""
    highest = choose_tier(probe(), None, Tier.NONE)
    if highest < tier:
        pytest.skip(f"this machine gives tier {highest.name}")


@pytest.fixture(scope="session")
def t2() -> Iterator[Driver]:
    needs(Tier.T2)
    driver = Driver(NodeConfig(slots=2, tier=Tier.T2))
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def t1() -> Iterator[Driver]:
    needs(Tier.T1)
    driver = Driver(NodeConfig(slots=2, tier=Tier.T1))
    yield driver
    driver.close()


@pytest.fixture(params=["t2", "t1"])
def box(request: pytest.FixtureRequest) -> Driver:
    """A node of each tier in turn."""
    driver = request.getfixturevalue(request.param)
    assert isinstance(driver, Driver)
    return driver
