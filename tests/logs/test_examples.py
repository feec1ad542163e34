"""The examples in docstrings of `purify`, `logs` and `replay` run, and the entry points have one."""

from __future__ import annotations

import doctest
import importlib

import pytest

from cleaner_rl import logs, purify, replay

ENTRY_POINTS = {
    "cleaner_rl.purify.hindsight": (purify.hindsight, purify.apply_purification),
    "cleaner_rl.purify.saar": (purify.repair,),
    "cleaner_rl.purify.rescore": (purify.rescore,),
    "cleaner_rl.logs.purification": (logs.purify,),
    "cleaner_rl.logs.messages": (logs.Dialect,),
    "cleaner_rl.logs.formats.messages": (logs.MessagesFormat,),
    "cleaner_rl.replay.verification": (replay.verify,),
}


@pytest.mark.parametrize("module", ENTRY_POINTS)
def test_examples_run(module: str) -> None:
    for each in ENTRY_POINTS[module]:
        assert "Example" in (each.__doc__ or ""), each
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed
