"""The slim install: its packages import little, its command imports nothing before it is told what to do.

What that costs in time is measured by `python -m benchmarks.startup`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires

PURE = ("tools", "trajectory", "purify", "resample")
PROBE = """
import json, sys
import {modules}
names = {{name.split(".")[0] for name in sys.modules if not name.startswith("_")}}
print(json.dumps([sorted(names - set(sys.stdlib_module_names)), sorted(sys.modules)]))
"""


def loaded(modules: str) -> tuple[set[str], set[str]]:
    """The packages of others, and all modules, that a fresh interpreter has after an import."""
    command = [sys.executable, "-c", PROBE.format(modules=modules)]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=bare)
    packages, names = json.loads(ran.stdout)
    return set(packages) - {"cleaner_rl", "sitecustomize", "usercustomize"}, set(names)


def test_the_pure_packages_load_no_engine_and_the_store_only_when_it_is_used() -> None:
    packages, names = loaded(", ".join(f"cleaner_rl.{package}" for package in PURE))
    assert packages <= {"numpy", "rapidfuzz", "cython_runtime"}  # the last is RapidFuzz's
    assert len(names) < 350, "each module takes about a millisecond"


def test_the_command_loads_what_it_runs_and_no_more() -> None:
    packages, names = loaded("cleaner_rl.cli")
    assert packages == {"click"}
    assert {name for name in names if name.startswith("cleaner_rl.cli.")} == {"cleaner_rl.cli.words"}


def test_the_core_asks_for_no_engine() -> None:
    core = [line for line in requires("cleaner-rl") or [] if "extra ==" not in line]
    names = {re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0].lower() for line in core}
    assert names == {"cleaner-sandbox", "click", "numpy", "pyarrow", "rapidfuzz"}
