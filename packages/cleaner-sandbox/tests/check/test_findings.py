"""Attacks that got through once, each by its name: `pytest -k finding_memory_page_tables`."""

from __future__ import annotations

import asyncio

import pytest

from cleaner_sandbox import Tier
from cleaner_sandbox.check import ATTACKS, AttackVerdict, check_node
from tests.check.test_attacks import breaches
from tests.conftest import needs

FINDINGS = [
    "clone_parent",
    "memory_page_tables",
    "memory_page_tables_by_a_name",
    "memory_without_a_first_thread",
    "dodge_name_like_a_field_then_die",
    "memory_mappings",
    "memory_file_locks",
    "memory_locks_on_pipes",
    "memory_locks_beside_a_long_path",
    "memory_open_file_locks",
    "memory_epoll",
    "memory_behind_many_copies",
    "memory_pipes_of_many_processes",
    "memory_spliced_pages",
    "memory_sent_pages",
    "memory_watch_events",
    "file_watch_shared",
    "across_file_lock_beside",
]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, AttackVerdict]:
    """Of all of them, on one node."""
    needs(Tier.T2)
    attacks = [attack for attack in ATTACKS if attack.name in FINDINGS]
    _, found = asyncio.run(check_node(Tier.T2, attacks, lambda verdict: None))
    return {verdict.attack.name: verdict for verdict in found}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [pytest.param(name, id=f"finding_{name}") for name in FINDINGS])
def test_what_was_found_is_contained(verdicts: dict[str, AttackVerdict], name: str) -> None:
    assert breaches([verdicts[name]]) == []
