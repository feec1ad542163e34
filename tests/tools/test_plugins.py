"""Plug-ins of other packages: found by name, and told what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.tools import PluginError, Plugins
from tests.plugins import install

KIND: Plugins[Any] = Plugins(
    group="cleaner_rl.things",
    what="thing",
    ours={"ours": "collections:OrderedDict"},
    needs=("keys",),
)
FILES = {
    "things_of_others.py": """
Good = dict
number = 3

class Bad:
    pass

class Picky:
    def __init__(self):
        raise OSError("no disk")
""",
    "things_that_break.py": "import no_such_module\n",
}
ENTRIES = {
    "good": "things_of_others:Good",
    "bad": "things_of_others:Bad",
    "number": "things_of_others:number",
    "picky": "things_of_others:Picky",
    "missing": "things_of_others:Missing",
    "breaks": "things_that_break:Thing",
    "ours": "things_of_others:Bad",
    "module": "things_of_others",
}


@pytest.fixture
def _others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", "others", {"cleaner_rl.things": ENTRIES}, FILES, monkeypatch)


@pytest.mark.usefixtures("_others")
def test_a_plugin_is_found_by_its_name_and_made_with_its_options() -> None:
    assert KIND.load("good", a=1) == {"a": 1}
    assert KIND.names() == sorted(ENTRIES)
    assert KIND.others() == sorted(set(ENTRIES) - {"ours"})
    first = [("ours", "cleaner-rl"), ("bad", "others")]
    assert [(each.name, each.package) for each in KIND.installed()][:2] == first


@pytest.mark.usefixtures("_others")
def test_nobody_replaces_what_we_ship() -> None:
    assert type(KIND.load("ours")).__name__ == "OrderedDict"


@pytest.mark.usefixtures("_others")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bad", r"'bad' of others \(things_of_others:Bad\).*'keys'"),
        ("number", "int"),
        ("picky", "OSError: no disk"),
        ("missing", "AttributeError: .*'Missing'"),
        ("breaks", "ModuleNotFoundError: No module named 'no_such_module'.*others"),
        ("module", "module.*others"),
        ("none", "'none'.*bad, breaks, good, missing, module, number, ours, picky"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_told(name: str, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        KIND.load(name)


@pytest.mark.usefixtures("_others")
def test_options_that_it_does_not_take_are_named() -> None:
    with pytest.raises(PluginError, match="speed: TypeError"):
        KIND.load("picky", speed=3)


@pytest.mark.usefixtures("_others")
def test_two_packages_with_one_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "two", "more", {"cleaner_rl.things": {"good": "collections:UserDict"}}, {}, monkeypatch)
    with pytest.raises(PluginError, match=r"'good'.*more and others"):
        KIND.load("good")
