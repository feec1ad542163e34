"""The examples in the docstrings of what the sandbox's packages export run, and give what they say."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cleaner_sandbox import BARE, Node, NodeConfig, Tier
from tests.conftest import needs
from tests.serving import opened

ADDRESS = "http://127.0.0.1:8089"
PACKAGES = ("cleaner_sandbox", "cleaner_sandbox.protocol", "cleaner_sandbox.client", "cleaner_sandbox.check")
ENTRIES = (
    "cleaner_sandbox.Limits",
    "cleaner_sandbox.Node",
    "cleaner_sandbox.NodeConfig",
    "cleaner_sandbox.RunRequest",
    "cleaner_sandbox.Session",
    "cleaner_sandbox.open_sandbox",
    "cleaner_sandbox.serve",
    "cleaner_sandbox.client.SandboxClient",
    "cleaner_sandbox.client.SyncSandboxClient",
    "cleaner_sandbox.check.check",
)
"""Where people begin: each has an example."""


def exported() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return found


def examples(value: Any) -> list[doctest.DocTest]:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return []
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    return finder.find(
        value, getattr(value, "__name__", "example"), globs={"Path": importlib.import_module("pathlib").Path}
    )


EXAMPLES = {name: found for name, value in exported().items() for found in examples(value) if found.examples}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a node that is served in a thread, so that examples may have an event loop of their own."""
    ready, over = threading.Event(), asyncio.Event()
    served: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, _):
            served.append(url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(60)
    yield served[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


def test_every_entry_point_has_an_example() -> None:
    assert set(ENTRIES) <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_says(name: str, request: pytest.FixtureRequest) -> None:
    needs(Tier.T2)
    found = EXAMPLES[name]
    for example in found.examples:
        if ADDRESS in example.source:
            example.source = example.source.replace(ADDRESS, request.getfixturevalue("address"))
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(found, out=said.append).failed == 0, "".join(said)
