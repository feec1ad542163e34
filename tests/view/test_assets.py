"""The committed page is what its sources give, and holds what it must."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cleaner_rl.view import assets

VIEWER = Path(__file__).parents[2] / "viewer"
BUILT = Path(assets.__file__).parent
NPM = shutil.which("node")


@pytest.mark.skipif(
    NPM is None or not (VIEWER / "node_modules").is_dir(),
    reason="no Node, or no viewer/node_modules: npm ci in viewer/",
)
def test_a_build_gives_the_committed_files(tmp_path: Path) -> None:
    subprocess.run([str(NPM), "build.mjs", str(tmp_path)], cwd=VIEWER, check=True, timeout=100)
    for built in tmp_path.iterdir():
        assert built.read_bytes() == (BUILT / built.name).read_bytes(), f"{built.name}: run `npm run build` in viewer/"


def test_the_script_can_stand_inside_of_a_page() -> None:
    script = assets.asset("app.js").decode()
    assert "</script" not in script.lower()
    assert "<!--" not in script


def test_every_bundled_package_has_its_licence() -> None:
    licences = assets.asset("LICENSES.txt").decode()
    for package in json.loads((VIEWER / "package.json").read_text())["dependencies"]:
        assert f"\n{package} " in f"\n{licences}"


def test_the_lock_file_names_no_registry() -> None:
    lock = (VIEWER / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert "://" not in "".join(line for line in lock.splitlines() if "funding" not in line and '"url"' not in line)
