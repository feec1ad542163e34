"""What a release is checked by can fail."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

import cleaner_rl
import cleaner_sandbox
from release.contents import CLEANER_RL, CLEANER_SANDBOX, Contents, problems_of_archive, problems_of_wheel
from release.licences import bill, is_fine
from release.locks import differences, named

ROOT = Path(__file__).parents[1]
BOTH = pytest.mark.parametrize("wanted", [CLEANER_RL, CLEANER_SANDBOX], ids=lambda wanted: wanted.package)


@BOTH
def test_a_wheel_that_lacks_something_or_holds_too_much_is_told(wanted: Contents) -> None:
    good = dict.fromkeys(wanted.needed, 10)
    typed, *others = wanted.needed
    assert problems_of_wheel(good, wanted) == []
    assert problems_of_wheel({typed: 1}, wanted) == [f"{name} is missing" for name in others]
    assert problems_of_wheel({**good, "tests/test_x.py": 1}, wanted) == ["tests/test_x.py is no part of the package"]
    compiled = f"{wanted.package}/a.pyc"
    assert problems_of_wheel({**good, compiled: 1}, wanted) == [f"{compiled} has no business there"]
    assert "more than" in problems_of_wheel({**good, f"{wanted.package}/big.json": wanted.most}, wanted)[0]
    assert problems_of_wheel({**good, **{f"{folder}big.js": wanted.most for folder in wanted.unweighed}}, wanted) == []


@BOTH
def test_an_archive_that_lacks_something_or_holds_a_secret_is_told(wanted: Contents) -> None:
    whole = [f"{wanted.package}-1/{name}/file" for name in wanted.archived]
    assert problems_of_archive(whole, wanted) == []
    assert problems_of_archive(whole[1:], wanted) == ["src is missing"]
    assert problems_of_archive([*whole, f"{wanted.package}-1/deploy/tokens.toml"], wanted) == [
        "deploy/tokens.toml has no business there"
    ]


def test_both_distributions_have_one_version_and_one_asks_for_exactly_the_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"cleaner-sandbox=={cleaner_sandbox.__version__}" in project["dependencies"]
    assert project["version"] == cleaner_rl.__version__ == cleaner_sandbox.__version__
    assert f"\nversion: {project['version']}\n" in citation


def test_the_sandbox_is_tested_with_the_versions_that_everything_is_tested_with() -> None:
    everything = named(ROOT / "constraints" / "slim.txt")
    alone = named(ROOT / "packages" / "cleaner-sandbox" / "constraints.txt")
    assert alone
    assert {name: version for name, version in alone.items() if everything.get(name) != version} == {}


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
