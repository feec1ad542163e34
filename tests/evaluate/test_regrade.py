"""Stored rollouts, graded again: tokens stay, grades and the report are those of today's graders."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.evaluate import Repair, ResultsError, evaluate, read_results, regrade, regraded_text
from cleaner_rl.evaluate.run import EvalPlan
from cleaner_rl.rollout import collect
from cleaner_rl.tasks import ChoiceGrader, Grade, Grader, Outcome, Task
from cleaner_rl.trajectory import AnyTrajectory
from cleaner_rl.trajectory.store import read
from tests.evaluate.standins import RIGHT, WRONG, RuleEngine, runner, tasks

CHOICE: dict[str, Grader] = {"choice": ChoiceGrader()}


class SaysA:
    """An older grader, which took A for the truth."""

    async def grade(self, task: Task, text: str) -> Grade:
        return Grade(Outcome.RIGHT if "{A}" in text else Outcome.WRONG, "A" if "{A}" in text else None, "so it was")


class Broken:
    async def grade(self, task: Task, text: str) -> Grade:
        return Grade(Outcome.FAULT, None, "the verifier died")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.rollout.runner.PAUSE", 0.0)


def answers(context: str, seed: int) -> str:
    return WRONG if "How many are 0 and" in context else RIGHT


def written(folder: Path, count: int) -> str:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks(count)))
    return str(file)


def evaluated(folder: Path, grader: Grader) -> Path:
    file = written(folder, 3)
    plan = EvalPlan({"mine": tasks(3)}, samples=2, repairs=(Repair.OFF,), sources=(file,))

    async def go() -> None:
        async with runner(RuleEngine(answers), {"choice": grader}) as made:
            await evaluate(plan, made, folder / "out", name="m", model="m")

    asyncio.run(go())
    return folder / "out"


def rolled(folder: Path, grader: Grader) -> Path:
    async def go() -> None:
        async with runner(RuleEngine(answers), {"choice": grader}) as made:
            await collect(made, tasks(3), folder, settings={"reward": "unit"})

    asyncio.run(go())
    return folder


def stored(folder: Path) -> dict[str, AnyTrajectory]:
    return {str(each.key): each for each in read(folder / "trajectories")}


def sampled(folder: Path) -> dict[str, object]:
    return {key: (each.text, each.ids().tolist(), each.stop_reason) for key, each in stored(folder).items()}  # type: ignore[misc]


def test_an_evaluation_is_graded_again_and_its_report_written_anew(tmp_path: Path) -> None:
    out = evaluated(tmp_path, SaysA())
    assert read_results(out).sets[0].runs[Repair.OFF].figures["pass@1"].value == pytest.approx(1 / 3)
    before = sampled(out)
    found = asyncio.run(regrade(out, CHOICE))
    assert found.counts == {"wrong → right": 4, "right → wrong": 2}
    assert (found.graded, len(found.rates)) == (6, 3)
    assert sampled(out) == before, "what was sampled stays"
    again = read_results(out)
    assert again.sets[0].runs[Repair.OFF].figures["pass@1"].value == pytest.approx(2 / 3)
    assert "regraded" in again.settings
    assert "66.7" in (out / "report.md").read_text()
    assert [each.info.answer for each in stored(out).values() if each.success] == ["C"] * 4
    assert not asyncio.run(regrade(out, CHOICE)).changes, "a second time changes nothing"


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    out = evaluated(tmp_path, SaysA())
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    found = asyncio.run(regrade(out, CHOICE, dry_run=True))
    assert len(found.changes) == 6
    ((name, repair, *scores),) = found.scores
    assert (name, repair) == ("mine", "off")
    assert scores == pytest.approx([1 / 3, 2 / 3])
    text = regraded_text(found)
    assert "wrong → right: 4" in text
    assert "| set/0 | 2 of 2 → 0 of 2 | right → wrong | 2 | A:" in text
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_grader_with_a_fault_leaves_the_grade_that_was_there(tmp_path: Path) -> None:
    out = evaluated(tmp_path, ChoiceGrader())
    found = asyncio.run(regrade(out, {"choice": Broken()}))
    assert found.skipped == {"the grader had a fault": 6}
    assert read_results(out).sets[0].runs[Repair.OFF].figures["pass@1"].value == pytest.approx(2 / 3)


def test_rollouts_are_graded_again_on_the_scale_of_their_rewards(tmp_path: Path) -> None:
    out = rolled(tmp_path / "run", SaysA())
    found = asyncio.run(regrade(out, CHOICE, tasks=[written(tmp_path, 3)]))
    assert found.counts == {"wrong → right": 2, "right → wrong": 1}
    assert {each.reward for each in stored(out).values()} == {0.0, 1.0}
    assert asyncio.run(regrade(out, CHOICE, tasks=[written(tmp_path, 1)])).skipped == {"not one of the tasks": 2}


def test_the_command_prints_what_changed(tmp_path: Path) -> None:
    out = evaluated(tmp_path, SaysA())
    shown = CliRunner().invoke(main, ["regrade", str(out), "--json"])
    assert shown.exit_code == 0, shown.output
    printed = json.loads(shown.stdout)
    assert printed["changed"] == 6
    assert printed["tasks"]["set/0"] == {"before": {"right": 2, "judged": 2}, "after": {"right": 0, "judged": 2}}
    assert {each["key"]["task"] for each in printed["changes"]} == {"set/0", "set/1", "set/2"}


def test_results_that_do_not_say_where_their_rollouts_are_have_one_folder_of_them(tmp_path: Path) -> None:
    out = evaluated(tmp_path, SaysA())
    file = out / "results.json"
    values = json.loads(file.read_text())
    del values["store"], values["settings"]["tasks"]
    file.write_text(json.dumps(values))
    assert len(asyncio.run(regrade(out, CHOICE, tasks=[written(tmp_path, 3)])).changes) == 6
    (out / "trajectories" / "other").mkdir()
    (out / "trajectories" / "other" / "settings.json").write_text("{}")
    with pytest.raises(ResultsError, match="2 folders"):
        asyncio.run(regrade(out, CHOICE, tasks=[written(tmp_path, 3)]))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cleaner eval"):
        asyncio.run(regrade(tmp_path, CHOICE))
    out = rolled(tmp_path / "run", ChoiceGrader())
    with pytest.raises(ResultsError, match="--tasks"):
        asyncio.run(regrade(out, CHOICE))
