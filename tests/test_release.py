"""What a release is checked by can fail."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from release.contents import ARCHIVED, MOST, NEEDED, problems_of_archive, problems_of_wheel
from release.licences import bill, is_fine
from release.locks import differences, named

ROOT = Path(__file__).parents[1]
GOOD = dict.fromkeys(NEEDED, 10)


def test_a_wheel_that_lacks_something_or_holds_too_much_is_told() -> None:
    assert problems_of_wheel(GOOD) == []
    assert problems_of_wheel({"cleaner_rl/py.typed": 1})[0] == "cleaner_rl/tasks/prompts/stateless.toml is missing"
    assert problems_of_wheel({**GOOD, "tests/test_x.py": 1}) == ["tests/test_x.py is no part of the package"]
    assert problems_of_wheel({**GOOD, "cleaner_rl/a.pyc": 1}) == ["cleaner_rl/a.pyc has no business there"]
    assert "more than" in problems_of_wheel({**GOOD, "cleaner_rl/big.json": MOST})[0]
    assert problems_of_wheel({**GOOD, "cleaner_rl/view/demo/big.json": MOST}) == []


def test_an_archive_that_lacks_something_or_holds_a_secret_is_told() -> None:
    whole = [f"cleaner_rl-1/{name}/file" for name in ARCHIVED]
    assert problems_of_archive(whole) == []
    assert problems_of_archive(whole[1:]) == ["src is missing"]
    assert problems_of_archive([*whole, "cleaner_rl-1/deploy/tokens.toml"]) == [
        "deploy/tokens.toml has no business there"
    ]


def test_a_package_that_is_not_named_so_is_told(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("# made by hand\nOne.Two==1.0\nother==2\nnot-here==3\n")
    found = {"one-two": "1.0", "other": "2.1", "third": "1", "pip": "9"}
    assert differences(named(file), found) == [
        "other 2.1 is installed, and 2 is named",
        "third 1 is installed, and no version is named",
    ]


@pytest.mark.parametrize(
    "words",
    ["MIT", "BSD-3-Clause AND (Apache-2.0 OR MIT)", "ISC License (ISCL)", "Mozilla Public License 2.0 (MPL 2.0)"],
)
def test_a_licence_that_is_fine(words: str) -> None:
    assert is_fine(words)


@pytest.mark.parametrize("words", ["GPL-3.0-only", "MIT AND AGPL-3.0", "unknown", "Other/Proprietary License"])
def test_a_licence_that_somebody_has_to_look_at(words: str) -> None:
    assert not is_fine(words)


def test_the_bill_of_materials_names_each_package_once() -> None:
    made = bill(list(distributions(name="click")))
    (component,) = made["components"]
    assert component["purl"].startswith("pkg:pypi/click@")
    assert component["licenses"] == [{"license": {"name": "BSD-3-Clause"}}]


def test_no_version_of_verifiers_is_installed_that_was_not_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = (each for each in extras["verifiers"] if each.startswith("verifiers"))
    assert wanted in (ROOT / "constraints/trl.txt").read_text().splitlines()
