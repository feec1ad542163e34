"""What `cleaner rollout` stored, `cleaner verify` replays to the same: with sessions and without, repaired or not.

Real processes and a real sandbox; the engine and its model are the stand-ins of the rollouts' own tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.trajectory.store import read
from cleaner_sandbox import Tier
from tests.nodes import needs
from tests.rollout.chats import tokenizer
from tests.rollout.processes import fake_engine, write_tasks

pytestmark = pytest.mark.timeout(300)


def ran(*arguments: Any) -> Any:
    found = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize("prompt", ["session", "stateless"])
def test_every_purified_rollout_replays_to_what_it_recorded(prompt: str, tmp_path: Path) -> None:
    needs(Tier.T2)
    model = tmp_path / "model"
    tokenizer("qwen3").save_pretrained(model)
    tasks = write_tasks(tmp_path / "tasks.jsonl", 6)
    with fake_engine(tmp_path, model) as (url, _, _):
        for repair in ("off", "saar", "hindsight"):
            options = ("--prompt", prompt, "--repair", repair, "--samples", 2)
            ran("rollout", "--tasks", tasks, "--model", model, "--url", url, "--out", tmp_path / repair, *options)
    for repair in ("off", "saar", "hindsight"):
        store = tmp_path / repair / "trajectories"
        assert ran("verify", store)["verdicts"] == {"same": 12}, repair
        assert all(each.info.stateful is (prompt == "session") for each in read(store))
    edits = sum(len(each.edits) for each in read(tmp_path / "hindsight/trajectories"))
    assert edits > 0
    # The command for logs repairs only what is warranted, so at most what training repairs in hindsight.
    found = ran("purify", tmp_path / "off/trajectories", "--out", tmp_path / "out", "--sft", "jsonl")
    assert sum(found["edits"].values()) <= edits
    assert found["replayed"].keys() <= {"same"}
    assert found["sft_rows"] + found["duplicate_rows"] == 12
