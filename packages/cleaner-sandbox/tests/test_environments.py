"""Which environment a program gets."""

from __future__ import annotations

import asyncio

import pytest

from cleaner_sandbox import BARE, DATA, SCIENCE, Environment, Node, NodeConfig, Tier, environments
from cleaner_sandbox.environments import choose
from tests.conftest import Driver, needs

WEB = Environment("web", packages=("requests",))


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np",
        "import numpy\tas np",
        "import os, \\\n    numpy as np",
        "np = __import__('numpy')",
        "import importlib\nnp = importlib.import_module('numpy.linalg')",
        "exec('import numpy as np')",
        "if True: from numpy import array",
    ],
)
def test_however_a_module_is_imported_its_set_is_chosen(code: str) -> None:
    assert choose(code, (BARE, SCIENCE, WEB)) is SCIENCE


@pytest.mark.parametrize("code", ["print(1 + 1)", "import math", "numpyish = not_numpy = 1", ""])
def test_a_program_that_names_no_module_gets_the_smallest_set(code: str) -> None:
    assert choose(code, (BARE, SCIENCE, WEB)) is BARE


@pytest.mark.parametrize(
    ("code", "chosen"),
    [
        ("import pandas as pd", DATA),
        ("from matplotlib import pyplot", DATA),
        ("import numpy, pandas, sympy", DATA),
        ("import numpy, sympy", SCIENCE),
        ("import math", BARE),
    ],
)
def test_tables_and_plots_have_a_set_of_their_own(code: str, chosen: Environment) -> None:
    assert choose(code, (BARE, SCIENCE, DATA)) is chosen


def test_the_set_for_data_has_its_libraries_loaded() -> None:
    pytest.importorskip("pandas")
    driver = Driver(NodeConfig(slots=1, environments=(BARE, SCIENCE, DATA)))
    try:
        code = "import sys\nprint({'pandas', 'matplotlib.pyplot'} <= {*sys.modules}, 'sympy' in sys.modules)"
        outcome = driver.outcome(code, environment="data")
        assert (outcome.environment, outcome.result.output) == ("data", "True False\n")
        code = "import pandas, sympy\nprint(pandas.Series([1, 2]).sum(), sympy.Integer(3))"
        assert driver.run(code).output == "3 3\n"
        assert set(driver.node.status.versions["data"]) >= {"pandas", "matplotlib", "numpy"}
    finally:
        driver.close()


def test_what_is_imported_counts_more_than_what_is_named() -> None:
    assert choose("import numpy\nrequests = []", (BARE, SCIENCE, WEB)) is SCIENCE


def test_a_module_that_no_set_has_is_left_to_the_largest() -> None:
    assert choose("import unheard_of", (BARE, SCIENCE)) is SCIENCE


def test_science_is_preloaded_only_where_its_extra_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NodeConfig().environments == (BARE, SCIENCE)
    monkeypatch.setattr(environments, "find_spec", lambda name: None if name == "sympy" else name)
    assert NodeConfig().environments == (BARE,)


def test_a_session_that_names_no_set_gets_one_that_the_node_has() -> None:
    needs(Tier.T2)

    async def opened() -> str:
        async with Node(NodeConfig(slots=1, environments=(BARE,))) as node:
            session = await node.open_session()
            return (await session.run("6 * 7")).run.environment

    assert asyncio.run(opened()) == "bare"
