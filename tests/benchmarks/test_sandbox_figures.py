"""The page on security says what the kept runs of `cleaner sandbox check` found, and nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from cleaner_sandbox.check import AttackClass

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sandbox-security.md").read_text()


def kept(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())["figures"]
    return figures


T1, T2 = kept("sandbox_check_t1.json"), kept("sandbox_check.json")


def through(figures: dict[str, Any]) -> list[str]:
    """The attacks that did harm."""
    return [each["name"] for each in figures["details"] if each["escaped"] or each["leaked"] or each["wrong"]]


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title: str) -> dict[str, list[str]]:
    """The table of a section: its first column, and the others."""
    lines = [line.strip("| ").split(" | ") for line in section(title).splitlines() if line.startswith("| ")]
    return {name.replace("*", ""): [cell.replace("*", "") for cell in cells] for name, *cells in lines[2:]}


def test_the_kept_runs_tried_the_same_attacks() -> None:
    assert {each["name"] for each in T1["details"]} == {each["name"] for each in T2["details"]}
    assert (T1["tier"], T2["tier"]) == ("T1", "T2")


def test_what_each_tier_stops_is_as_kept() -> None:
    kinds = {each["name"]: each["class"] for each in T2["details"]}
    columns = [list(kinds), T2["effective"]["none"], through(T1), through(T2)]
    counted = [Counter(kinds[name] for name in column) for column in columns]
    expected = {kind.value: [str(count[kind]) for count in counted] for kind in AttackClass}
    expected["all"] = [str(count.total()) for count in counted]
    assert rows("What the tiers stop") == expected
    assert f"Of the rest, {len(T2['effective']['naive'])} succeed" in section("What the tiers stop")
    attacks = {name: cells[0] for name, cells in rows("`cleaner sandbox check`").items()}
    assert attacks == {name: cells[0] for name, cells in expected.items()}


def test_what_t1_can_not_stop_is_named_in_full() -> None:
    assert set(re.findall(r"`(\w+)`", section("What T1 can't stop"))) == set(through(T1))


def test_what_each_layer_stops_is_as_kept() -> None:
    for layer, (found, example) in rows("Layer by layer").items():
        if count := len(T2["effective"][layer]):
            assert found == str(count)
            continue
        (pair,) = (name for name in T2["effective"] if name.startswith(f"{layer}+"))
        assert found.startswith("none: ")
        assert f"with both out: {len(T2['effective'][pair])}" in example
    assert set(rows("Layer by layer")) == {name for name in T2["effective"] if "+" not in name} - {"none", "naive"}
