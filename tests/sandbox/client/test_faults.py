"""Fault injection, the short form of `python -m benchmarks.sandbox_faults --json`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(180)
def test_x8_no_call_is_lost_doubled_or_misdirected_while_slots_zygotes_fronts_and_nodes_are_killed() -> None:
    command = [sys.executable, "-m", "benchmarks.sandbox_faults", "--json", "--calls", "800", "--kills", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=True)
    figures = json.loads(done.stdout)
    faults = figures["faults"]
    assert all(faults["kills"].values()), faults
    assert {name: faults[name] for name in ("lost", "not_answered", "answered_twice", "wrong")} == {
        "lost": 0,
        "not_answered": 0,
        "answered_twice": 0,
        "wrong": 0,
    }, faults["explanations"]
    assert (faults["right_afterwards"], faults["nodes_back"]) == (200, 2)
    assert figures["left_behind"] == {"processes": [], "files": []}
