"""Sets from requirements files, with a package that is built on the spot: nothing comes from the network."""

from __future__ import annotations

import asyncio
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_sandbox import BARE, SCIENCE, Node, NodeConfig, RunRequest
from cleaner_sandbox.cli import sandbox
from cleaner_sandbox.node.requirements import RequirementsError, install_set
from cleaner_sandbox.preload import choose

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp, because runs have their own there."""
    parent = Path.home() / ".cache"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cleaner-sandbox-test-", dir=parent) as name:
        yield Path(name)


def wheel(folder: Path, name: str, module: str, text: str) -> Path:
    """The smallest wheel there is."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}/__init__.py", text)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{module}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def requirements(folder: Path) -> Path:
    wheel(folder, "tiny_sums", "tinysums", "import time\nloaded = time.monotonic()\ndef double(x): return 2 * x\n")
    path = folder / "requirements.txt"
    path.write_text(f"# ours\n--no-index\n--find-links {folder}\ntiny-sums == 1.0\n")
    return path


def test_a_set_is_installed_once_and_chosen_by_what_programs_import(folder: Path, requirements: Path) -> None:
    made = install_set("sums", requirements, folder / "cache")
    assert (made.modules, made.packages) == (("tinysums",), ("tiny_sums",))
    assert install_set("sums", requirements, folder / "cache") == made
    sets = (BARE, SCIENCE, made)
    assert [choose(code, sets).name for code in ("import os", "import numpy", "from tinysums import double")] == [
        "bare",
        "science",
        "sums",
    ]

    async def check() -> None:
        async with Node(NodeConfig(slots=1, preload=(BARE, made))) as node:
            code = "import time, tinysums\nprint(tinysums.double(21), time.monotonic() - tinysums.loaded > 0.001)"
            outcome = await node.run(RunRequest(code))
            assert (outcome.result.output, outcome.preload) == ("42 True\n", "sums")
            assert (await node.run(RunRequest(code, preload="bare"))).result.exception is not None

    asyncio.run(check())


def test_a_changed_file_is_another_set(folder: Path, requirements: Path) -> None:
    first = install_set("sums", requirements, folder / "cache")
    wheel(folder, "tiny_more", "tinymore", "x = 1\n")
    requirements.write_text(requirements.read_text() + "tiny_more\n")
    second = install_set("sums", requirements, folder / "cache")
    assert second.site != first.site
    assert second.modules == ("tinymore", "tinysums")


def test_what_can_not_be_installed_is_said_with_what_to_do_and_leaves_nothing(folder: Path) -> None:
    wrong = folder / "wrong.txt"
    wrong.write_text(f"--no-index\n--find-links {folder}\nno-such-package-at-all\n")
    with pytest.raises(RequirementsError, match=r"(?s)Try it by hand: .*pip install.*no-such-package-at-all"):
        install_set("wrong", wrong, folder / "cache")
    assert [path.name for path in (folder / "cache").iterdir() if path.suffix != ".lock"] == []
    with pytest.raises(RequirementsError, match="can't be read"):
        install_set("absent", folder / "absent.txt", folder / "cache")


@pytest.mark.parametrize("option", ["web", "science=requirements.txt"])
def test_the_command_refuses_a_set_without_a_file_or_with_a_taken_name(option: str) -> None:
    done = CliRunner().invoke(sandbox, ["serve", "--set", option])
    assert done.exit_code == 2
    assert "--set web=requirements.txt" in done.output
