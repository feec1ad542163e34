"""`cleaner purify --ray`: the same parts as one process writes, from a real, small Ray cluster on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.trajectory.store import read
from tests.logs.cases import CASES
from tests.logs.rendering import openai

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import ray

    # Below a short path: a socket's name must fit into 107 characters.
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=str(tmp_path_factory.mktemp("r")),
        _node_ip_address="127.0.0.1",
        logging_level="ERROR",
        object_store_memory=100 << 20,
    )
    yield
    ray.shutdown()


def purified(*arguments: str | Path) -> Any:
    ran = CliRunner().invoke(main, ["purify", *map(str, arguments), "--no-replay", "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.usefixtures("cluster")
def test_units_on_ray_write_what_one_process_writes(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    # Five files above the smallest unit of a megabyte, so that there are five units.
    for number in range(5):
        records = [{**openai(case), "task_id": f"{number}-{case.name}", "pad": "x" * 60_000} for case in CASES]
        (logs / f"{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    one = purified(logs, "--out", tmp_path / "one", "--piece-mb", "1", "--same")
    two = purified(logs, "--out", tmp_path / "two", "--piece-mb", "1", "--same", "--ray")
    assert {**one, "out": ""} == {**two, "out": ""}
    assert one["trajectories"] == 100
    assert len(list((tmp_path / "two/units").iterdir())) >= 5
    names = sorted(str(path.relative_to(tmp_path / "one")) for path in (tmp_path / "one").rglob("*.*"))
    assert names == sorted(str(path.relative_to(tmp_path / "two")) for path in (tmp_path / "two").rglob("*.*"))
    assert list(read(tmp_path / "one/store")) == list(read(tmp_path / "two/store"))
    for path in (tmp_path / "one/same").iterdir():
        assert path.read_bytes() == (tmp_path / "two/same" / path.name).read_bytes()
