"""The project's size is counted in each distribution, and the figures from before it was made smaller are kept."""

from __future__ import annotations

import json
from pathlib import Path

from tests import size

KEPT = size.ROOT / "benchmarks" / "results" / "size.json"


def test_two_distributions_are_counted_apart_and_added_up(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "cleaner-rl"\ndependencies = ["numpy>=1", "cleaner-sandbox==0.2.0"]',
        "packages/cleaner-sandbox/pyproject.toml": '[project]\nname = "cleaner-sandbox"\ndependencies = ["click>=8"]',
        "docs/reference/recipe.md": "## Top level\n| key |\n| `name` |\n| `seed` |\n\n## model\n| `path` |\n",
        "src/cleaner_rl/__init__.py": "",
        "src/cleaner_rl/tasks/load.py": 'TASKS = Plugins(\n    group="cleaner_rl.tasks",\n)\n',
        "packages/cleaner-sandbox/src/cleaner_sandbox/node.py": "x = 1\n",
        "packages/cleaner-sandbox/tests/test_node.py": "x = 1\ny = 2\n",
        "tests/cli/flags.txt": "cleaner train  --set  text\ncleaner train  RECIPE\n",
        "tests/public_api.txt": "cleaner_rl.tasks.load(x: int) -> a.B\ncleaner_rl.contracts.tools.ToolContract: tool\n",
        "packages/cleaner-sandbox/tests/public_api.txt": "cleaner_sandbox.Status: ok, fault\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = size.measure(tmp_path)
    assert found["lines"] == {
        "src/cleaner_rl": {".": 0, "tasks": 3},
        "packages/cleaner-sandbox/src/cleaner_sandbox": {".": 1},
        "tests": {},
        "packages/cleaner-sandbox/tests": {".": 2},
    }
    assert found["exports"] == {"cleaner_rl.tasks": 1, "cleaner_sandbox": 1}
    assert found["recipe_keys"] == {"Top level": 2, "model": 1}
    assert found["options"] == {"cleaner train": 1}
    assert found["plugin_groups"] == ["cleaner_rl.tasks"]
    assert found["dependencies"] == {"cleaner-rl": ["cleaner-sandbox", "numpy"], "cleaner-sandbox": ["click"]}
    assert size.totals(found)["dependencies of a bare install"] == 2


def test_this_checkout_has_every_figure_that_is_kept() -> None:
    kept = json.loads(KEPT.read_text())["before"]
    assert kept["commit"] == "da9b84d2"
    assert kept["totals"] == size.totals(kept)
    assert size.totals(size.measure()).keys() >= kept["totals"].keys()
