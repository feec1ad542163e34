"""The short form of `benchmarks.sandbox_bench`, and what is promised of the program that it measures against."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.sandbox_bench import measure
from benchmarks.sandbox_bench.__main__ import bench
from cleaner_sandbox import Tier
from tests.nodes import needs


@pytest.mark.timeout(300)
def test_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(Tier.T2)
    short = {name: replace(measure.PROGRAMS[name], runs=20) for name in ("print", "bash")}
    monkeypatch.setattr(measure, "PROGRAMS", short)
    done = CliRunner().invoke(bench, ["--rounds", "1", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert set(figures) == {"print", "bash", "p50_ms", "cpu", "mitigations"}
    assert figures["cpu"]
    for name in short:
        assert set(figures[name]) == {"service_ms", "isolated_fork_ms", "fork_ms", "ratio", "p50_ms"}
        assert min(figures[name].values()) > 0


def test_a_mitigation_is_told_and_what_a_cpu_is_not_affected_by_is_not(tmp_path: Path) -> None:
    (tmp_path / "meltdown").write_text("Mitigation: PTI\n")
    (tmp_path / "mds").write_text("Not affected\n")
    (tmp_path / "spectre_v2").write_text("Vulnerable\n")
    assert measure.mitigations(tmp_path) == {"meltdown": "PTI"}


def test_the_bare_fork_is_short_and_stands_alone() -> None:
    source = Path(measure.__file__).with_name("bare_fork.py").read_text()
    assert len(source.splitlines()) < 120
    assert "cleaner_" not in "".join(line for line in source.splitlines() if "import" in line)
