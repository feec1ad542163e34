"""Which preload set a program gets."""

from __future__ import annotations

import pytest

from cleaner_rl.sandbox import BARE, SCIENCE, PreloadSet
from cleaner_rl.sandbox.node.preload import choose

WEB = PreloadSet("web", packages=("requests",))


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


def test_what_is_imported_counts_more_than_what_is_named() -> None:
    assert choose("import numpy\nrequests = []", (BARE, SCIENCE, WEB)) is SCIENCE


def test_a_module_that_no_set_has_is_left_to_the_largest() -> None:
    assert choose("import unheard_of", (BARE, SCIENCE)) is SCIENCE
