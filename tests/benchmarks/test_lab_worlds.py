"""The lab's worlds, and how the fresh ones are judged."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.lab.__main__ import main
from benchmarks.lab.environments import REAL
from benchmarks.lab.local.margins import RATES, REAL_RATE, Interval, Plan, margins, read_plan
from benchmarks.lab.local.methods import (
    AT_EQUAL_COMPUTE,
    COMPARED,
    GRPO,
    HINDSIGHT,
    METHODS,
    OTHERS,
    OURS,
    SAAR,
    TWO_VIEWS,
)
from benchmarks.lab.local.on_verl import recipe_on_verl
from benchmarks.lab.local.page import FIGURE, LONGER_FIGURE, PAGES, SIGNALS, Lines, blocks, write_pages
from benchmarks.lab.local.preregistered import SecondPlan, judged, read_second_plan
from benchmarks.lab.local.queue import EQUAL, Queue, best_for, read, write
from benchmarks.lab.local.runs import WorldRun, clear_of_others
from benchmarks.lab.local.worlds import DEVELOPMENT, ENVIRONMENTS, EQUAL_COMPUTE, FRESH, PREREGISTERED, World
from benchmarks.lab.page import DOCS, MARK, filled
from benchmarks.lab.recipes import RATE
from benchmarks.lab.recovery import failed_first, question_of
from benchmarks.toy import library
from benchmarks.toy.library import OPERATIONS, called, task_names
from benchmarks.toy.mistakes import Program, call
from benchmarks.toy.questions import TEST, TRAIN
from benchmarks.toy.regimes import REGIMES
from benchmarks.toy.sandboxes import offered
from cleaner_rl.tasks import Task
from cleaner_rl.tools import ToolResult, ToolSet, call_format
from cleaner_rl.train.recipe.settings import run_folder
from cleaner_rl.train.rows import Views
from cleaner_rl.trajectory import Key


def stems(tasks: list[Task]) -> set[tuple[str, ...]]:
    return {question_of(task).stems for task in tasks}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_test_tasks_combine_operations_as_no_training_task_does(environment: str) -> None:
    world = World(environment, 3)
    training = {each.stems for each in islice(world.questions(TRAIN), 2_048)}
    tested, failing = world.tested(), world.failing()
    assert training.isdisjoint(stems(tested) | stems(failing))
    assert len({task.id for task in (*tested, *failing)}) == len(tested) + len(failing) == 1_256


def test_worlds_differ_in_names_and_tasks_and_share_what_the_cold_start_knows() -> None:
    one, other = World("drift", 1), World("drift", 2)
    assert one.regime.current != other.regime.current
    assert one.regime.known == other.regime.known
    assert {task.id.split("/")[1] for task in one.tested()}.isdisjoint(
        {task.id.split("/")[1] for task in other.tested()}
    )
    assert World("drift", 1).model == World("drift", 3).model != other.model
    assert World("per-task", 2).model == World("drift", 2).model
    assert not set(DEVELOPMENT) & set(FRESH)
    assert len(FRESH) >= 10


def in_library(site: Path, codes: list[str]) -> list[ToolResult]:
    regime = REGIMES["per-task"]
    tools = ToolSet(regime.prompt.tool)

    async def run() -> list[ToolResult]:
        async with offered([site], regime.tool) as (tool_env,), tool_env.open(Key("test", 0, "", 0)) as session:
            calls = [call_format("hermes").parse(code, tools).calls[0] for code in codes]
            return [(await session.run([each]))[0] for each in calls]

    return asyncio.run(run())


def test_names_that_differ_from_task_to_task_are_what_the_library_says() -> None:
    world = World("per-task", 4)
    asked = [question_of(task) for task in world.tested()[:8]]
    right = [call(Program(each, world.regime.names(each.numbers)).right()) for each in asked]
    failing = [failed_first(task, world.regime) for task in world.failing()[:8]]
    unread = call('import kit\nprint(kit.total_of("1 2".split()))')
    wrong_name = call(f'import kit\nx=kit.ints("1 2")\nprint(kit.{wrong_total(world)}(x))')
    with TemporaryDirectory(dir="/var/tmp") as folder:  # runs of the sandbox can't see /tmp
        site = library.write_source(Path(folder) / "kit", library.task_source(world.number))
        results = in_library(site, [*right, *failing, unread, wrong_name])
    assert [each.output for each in results[:8]] == [f"{each.printed}\n" for each in asked]
    assert all(each.failed for each in results[8:])
    assert "x must hold integers" in str(results[16].exception)
    assert f"use {called('total', task_names((1, 2), world.number))}" in str(results[17].exception)
    names = [task_names(question.numbers, 1)["total"] for question in asked]
    assert len(set(names)) > 1


def wrong_total(world: World) -> str:
    right = task_names((1, 2), world.number)["total"]
    return f"total_{'of' if right != 'of' else 'up'}"


def test_the_names_of_tasks_are_spread_evenly() -> None:
    drawn = [task_names((first, second), 1) for first in range(30) for second in range(30)]
    for stem in OPERATIONS:
        counts = [sum(names[stem] == suffix for names in drawn) for suffix in library.SUFFIXES]
        assert min(counts) > 0.6 * len(drawn) / len(library.SUFFIXES)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_method_has_a_recipe_in_every_environment(environment: str) -> None:
    for method in METHODS:
        recipe = WorldRun(World(environment, 1), method, RATES[0]).recipe()
        assert recipe.verl[RATE] == RATES[0]
        assert recipe.budget.turns == REGIMES[environment].calls + 1


def test_no_run_goes_on_from_the_checkpoint_of_other_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEANER_LAB", str(tmp_path))
    recipe = WorldRun(World("drift", 1), GRPO, 3e-4).recipe()
    clear_of_others(recipe)
    checkpoint = run_folder(recipe) / "checkpoints"
    checkpoint.mkdir()
    clear_of_others(recipe)
    assert checkpoint.exists()
    clear_of_others(replace(recipe, model=replace(recipe.model, path="another")))
    assert not checkpoint.exists()


def test_verl_trains_the_views_of_the_method_and_refuses_what_no_recipe_can_say() -> None:
    views = {method: recipe_on_verl(WorldRun(World("drift", 1), method, 3e-4)).purify.views for method in COMPARED}
    assert views == dict.fromkeys((GRPO, SAAR, HINDSIGHT), Views.CLEAN) | dict.fromkeys((TWO_VIEWS, OURS), Views.FULL)
    with pytest.raises(ValueError, match="no recipe for verl can say"):
        recipe_on_verl(WorldRun(World("drift", 1), "two-views-shared", 3e-4))


# ---- margins

PLAN = Plan(dict.fromkeys(METHODS, 3e-4), {"drift": HINDSIGHT, "slips": SAAR}, 0.03, 1.25, 0.7, 0.05, 0.03)


def line(
    environment: str, world: int, method: str, accuracy: float, tokens: int = 100, **over: float
) -> dict[str, Any]:
    start = {"accuracy": 0.0, "errors": 2.0, "first_call_works": 0.1}
    test = {"accuracy": accuracy, "errors": over.get("errors", 0.1), "first_call_works": 0.9}
    return {
        "environment": environment,
        "world": world,
        "method": method,
        "rate": over.get("rate", 3e-4),
        "seed": over.get("seed", world),
        "steps": over.get("steps", 20),
        "curve": {"0": start, **{step: {"accuracy": share} for step, share in (("10", 0.4), ("20", 0.6), ("40", 0.5))}},
        "test": test,
        "recovery": {"right": over.get("recovery", 0.5)},
        "sampled_tokens": tokens,
        "scored_tokens": 20,
        "trained_tokens": 60,
        "calls": 7,
        "cpu_seconds": 50.0,
        "signal": dict.fromkeys(SIGNALS, 0.25),
    }


def lines(ours: float, theirs: float, comparator: str, environment: str, **over: float) -> list[dict[str, Any]]:
    tokens = {GRPO: 100, SAAR: 200, HINDSIGHT: 90, OURS: 95}
    found = []
    for place, world in enumerate(FRESH):
        noise = 0.01 * (place % 2)
        found += [
            line(environment, world, OURS, ours + noise, tokens[OURS], **over),
            line(environment, world, comparator, theirs + 2 * noise, tokens[comparator]),
            line(environment, world, GRPO, 0.5, tokens[GRPO]),
        ]
    return found


def test_the_last_fresh_worlds_run_what_the_margins_need() -> None:
    assert PLAN.methods_in(World("drift", FRESH[0])) == [*COMPARED, *OTHERS]
    assert PLAN.methods_in(World("slips", FRESH[0])) == PLAN.methods_in(World("slips", DEVELOPMENT[0])) == [*COMPARED]
    assert PLAN.methods_in(World("drift", FRESH[4])) == [*COMPARED]
    assert PLAN.methods_in(World("slips", FRESH[5])) == [GRPO, SAAR, OURS]


def test_an_interval_is_students() -> None:
    found = Interval.of([1.0, 2.0, 3.0, 4.0])
    assert found.mean == 2.5
    assert found.high - found.mean == pytest.approx(2.353 * 1.2909944 / 2)
    assert Interval.of([1.0]).to_json() == {"mean": 1.0, "low": None, "high": None, "worlds": 1}
    assert (found.above(0.9), found.above(5.0), found.above(2.5)) == ("holds", "fails", "undecided")
    assert (found.below(5.0), found.below(0.5), found.below(2.5)) == ("holds", "fails", "undecided")


def test_margins_hold_fail_or_are_undecided_over_all_fresh_worlds() -> None:
    good = [*lines(0.8, 0.79, HINDSIGHT, "drift"), *lines(0.8, 0.78, SAAR, "slips")]
    found = margins(good, PLAN)
    assert found["holds"]
    assert found["worlds"] == len(FRESH)
    drift = found["by_regime"]["drift"]
    assert drift["margins"]["accuracy"]["mean"] == pytest.approx(0.005)
    assert drift["methods"][OURS]["area"] == 0.5
    assert drift["methods"][OURS]["tokens_over_grpo"] == 0.95
    assert drift["methods"][OURS]["costs"]["sampled_tokens"] == 95
    assert drift["methods"][OURS]["accuracy_over_grpo"]["mean"] == pytest.approx(0.305)
    assert found["by_regime"]["slips"]["margins"]["tokens_over_saar"]["verdict"] == "holds"

    for over, margin in ({"errors": 0.2}, "failed_calls"), ({"recovery": 0.4}, "recovery"):
        worse = margins([*lines(0.8, 0.79, HINDSIGHT, "drift", **over), *lines(0.8, 0.78, SAAR, "slips")], PLAN)
        assert not worse["holds"]
        assert worse["by_regime"]["drift"]["margins"][margin]["verdict"] == "fails"
    assert margins(lines(0.7, 0.79, HINDSIGHT, "drift"), PLAN)["by_regime"]["drift"]["verdict"] == "fails"
    assert margins(lines(0.765, 0.79, HINDSIGHT, "drift"), PLAN)["by_regime"]["drift"]["verdict"] == "undecided"


def test_development_worlds_and_other_rates_do_not_count() -> None:
    good = [*lines(0.8, 0.79, HINDSIGHT, "drift"), *lines(0.8, 0.78, SAAR, "slips")]
    beside = [
        line("drift", FRESH[0], HINDSIGHT, 1.0, rate=6e-4),
        *(line("drift", world, HINDSIGHT, 1.0) for world in DEVELOPMENT),
    ]
    assert margins([*good, *beside], PLAN) == margins(good, PLAN)
    assert margins([], PLAN)["holds"] is False


def test_a_world_counts_when_all_methods_have_run_in_it_that_the_margins_need() -> None:
    good = [*lines(0.8, 0.79, HINDSIGHT, "drift"), *lines(0.8, 0.78, SAAR, "slips")]
    lost = [each for each in good if (each["environment"], each["world"], each["method"]) != ("drift", FRESH[3], OURS)]
    kept = [each for each in good if (each["environment"], each["world"]) != ("drift", FRESH[3])]
    assert margins(lost, PLAN) == margins(kept, PLAN)
    assert margins(lost, PLAN)["worlds"] == len(FRESH) - 1


def test_a_run_with_another_seed_is_another_run() -> None:
    run = WorldRun(World("slips", 104), GRPO, 3e-4)
    other = replace(run, other_seed=1)
    assert [each.recipe().seed for each in (run, other)] == [104, 1]
    assert run.name != other.name
    assert run.key != other.key
    assert run.recipe().model == other.recipe().model


def test_a_worker_stays_in_its_world_and_out_of_others() -> None:
    one, two = World("drift", 101), World("slips", 101)
    jobs = [WorldRun(one, "saar", 3e-4), WorldRun(two, "grpo", 3e-4), WorldRun(two, "saar", 3e-4)]
    assert best_for(two, jobs, [one]) is jobs[1]
    assert best_for(None, jobs, [one]) is jobs[1]
    assert best_for(one, jobs, [two]) is jobs[0]
    assert best_for(None, jobs[1:], [two]) is jobs[1]
    assert best_for(two, [jobs[0]] * 8 + jobs[1:], []) is jobs[0], "too far ahead"


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = [line("drift", 1, GRPO, 0.5), line("slips", 1, GRPO, 0.6)]
    for each in made:
        write(each, tmp_path)
    assert read(tmp_path) == made
    told = CliRunner().invoke(main, ["margins", "--first", "--json", "--results", str(tmp_path)])
    assert json.loads(told.output)["by_regime"].keys() == read_plan().comparators.keys()
    assert set(TEST) != set(TRAIN)


# ---- the second plan

SECOND = SecondPlan(
    "two-views", "two-views-mass-1", {"drift": [GRPO, "grpo-longer"], "slips": [GRPO]}, 3e-4, 0.03, 1, 0.05
)


def of_plan(gains: dict[str, float], spread: float = 0.0, leave: tuple[str, str, int] | None = None) -> list[Any]:
    """A line of every run: the default is so much above each other method of an environment."""
    return [
        line(environment, world, method, 0.5 + (method == SECOND.default) * (gains[environment] + noise), tokens=90)
        | {"updates": {"entropy": [0.3, 0.2]}}
        for environment in SECOND.rivals
        for method in SECOND.methods(environment)
        for world in PREREGISTERED
        for noise in (spread * (-1) ** ((world - PREREGISTERED[0]) // 2),)
        if leave != (environment, method, world)
    ]


def test_the_second_plan_is_judged_over_models() -> None:
    found = judged(of_plan({"drift": 0.1, "slips": -0.01}, 0.01), SECOND)
    assert (found["models"], found["worlds"], found["missing"]) == (8, 16, 0)
    assert found["holds"]
    assert found["better_in"] == ["drift"]
    rival = found["by_environment"]["drift"]["methods"]["grpo-longer"]
    margin, corrected = rival["default_minus_this"], rival["corrected"]
    assert margin["mean"] == corrected["mean"] == pytest.approx(0.1)
    spread = 0.01 * (8 / 7) ** 0.5
    assert margin["mean"] - margin["low"] == pytest.approx(1.895 * spread / 8**0.5, abs=1e-4)
    assert corrected["high"] - corrected["mean"] == pytest.approx(2.365 * spread / 8**0.5, abs=1e-4)
    assert margin["between_worlds"] == 0
    assert rival["cpu_seconds"] == 50
    assert found["by_environment"]["drift"]["methods"]["grpo"].keys() >= {"area", "failed_calls", "recovery"}

    assert not judged(of_plan({"drift": 0.0, "slips": 0.0}, 0.01), SECOND)["holds"], "not worse, and better nowhere"
    for loss, verdict in ((-0.05, "fails"), (-0.03, "undecided"), (-0.02, "holds")):
        worse = judged(of_plan({"drift": 0.1, "slips": loss}, 0.01), SECOND)
        assert worse["by_environment"]["slips"]["verdict"] == verdict
        assert worse["holds"] is (verdict == "holds")


def test_a_model_counts_when_all_of_its_runs_are_kept_and_missing_runs_are_named() -> None:
    lost = of_plan({"drift": 0.1, "slips": 0.0}, leave=("drift", "grpo-longer", 204))
    found = judged(lost, SECOND)
    drift = found["by_environment"]["drift"]
    assert (found["models"], drift["worlds"], found["missing"]) == (7, 14, 1)
    assert drift["missing"] == {"grpo-longer": [204]}
    nothing = judged([], read_second_plan())
    assert (nothing["models"], nothing["holds"]) == (0, False)
    assert nothing["missing"] == 16 * (2 * 5 + 2 * 4)
    other = [each | {"rate": 6e-4} for each in of_plan({"drift": 0.1, "slips": 0.0})]
    assert judged([*of_plan({"drift": 0.1, "slips": 0.0}), *other], SECOND)["holds"]
    assert judged(other, SECOND)["models"] == 0


def test_each_preregistered_model_is_fresh_and_has_two_worlds() -> None:
    worlds = [World("drift", number) for number in PREREGISTERED]
    starts = [world.start for world in worlds]
    assert [world.fresh_model for world in worlds] == [model for model in range(8) for _ in range(2)]
    assert len({lessons.seed for _, lessons in starts}) == 8
    known = [World("drift", number).start for number in (*DEVELOPMENT, *FRESH)]
    assert {lessons.seed for _, lessons in starts}.isdisjoint({lessons.seed for _, lessons in known})
    assert [World("per-task", number).start for number in PREREGISTERED] == starts
    plan = read_second_plan()
    steps = {name: World(name, PREREGISTERED[0]).size.steps for name in plan.rivals}
    assert steps == {"drift": 60, "starved": 60, "slips": 40, "per-task": 20}
    assert WorldRun(World("starved", 201), "grpo-longer", 3e-4).recipe().run.steps == 144
    assert all(method in METHODS for name in plan.rivals for method in plan.methods(name))


def test_at_equal_compute_four_methods_run_everywhere_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[WorldRun], Path]] = []
    monkeypatch.setattr(Queue, "work", lambda queue, runs, _: asked.append((list(runs), queue.results)))
    assert CliRunner().invoke(main, ["run-worlds", "--stage", "equal"]).exit_code == 0
    ((runs, folder),) = asked
    assert folder == EQUAL
    assert len(runs) == 2 * 5 * len(AT_EQUAL_COMPUTE) == len(set(runs))
    assert {run.method for run in runs[:40]} == set(AT_EQUAL_COMPUTE[:4])
    assert [run.world for run in runs[::4]][:10] == [
        World(environment, number) for number in EQUAL_COMPUTE for environment in ENVIRONMENTS[:-1]
    ]


@pytest.mark.parametrize(
    "given",
    [
        ["--stage", "preregistered", "--method", "mask"],
        ["--stage", "preregistered", "--rate", "1e-3"],
        ["--stage", "preregistered", "--world", "2"],
        ["--stage", "preregistered", "--regime", "one-by-one"],
        ["--stage", "preregistered", "--steps", "2", "--results", "other"],
        ["--world", "201"],
    ],
)
def test_the_second_plans_worlds_run_as_it_says(given: list[str]) -> None:
    told = CliRunner().invoke(main, ["run-worlds", *given])
    assert told.exit_code == 2
    assert "plan" in told.output


# ---- pages


def test_the_pages_say_what_the_lines_say() -> None:
    found = blocks(Lines.kept(), read_plan())
    marks: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, found) == text, "run `python -m benchmarks.lab page`"
        marks += [match[2] for match in MARK.finditer(text)]
    assert set(marks) == set(found)
    assert all((DOCS / "images" / each).exists() for each in (FIGURE, LONGER_FIGURE))


def test_a_page_has_every_environment_with_its_interval_and_its_verdict(tmp_path: Path) -> None:
    page = tmp_path / "worlds.md"
    marks = (
        "worlds",
        "worlds-margins",
        "worlds-comparators",
        "worlds-verl",
        "worlds-longer",
        "worlds-seeds",
        "worlds-starts",
        "worlds-partly",
        "worlds-signals",
        "worlds-smollm2",
        "worlds-rescue",
        "worlds-equal",
        "worlds-second",
    )
    page.write_text("".join(f"<!-- lab:{mark} -->\n<!-- /lab:{mark} -->\n" for mark in marks), encoding="utf-8")
    tried = [line("drift", world, GRPO, 0.6 + 0.1 * world) for world in DEVELOPMENT[:2]]

    on_verl = [line("drift", FRESH[0], OURS, 0.7, errors=0.2)]

    real = line(REAL, FRESH[0], GRPO, 0.4, tokens=90_000, errors=1.5, rate=REAL_RATE)

    longer = [line("drift", world, each, end, steps=60) for world in (1, 2) for each, end in ((GRPO, 0.7), (OURS, 0.9))]

    here = [*lines(0.8, 0.79, HINDSIGHT, "drift"), *tried, real, line("drift", FRESH[0], SAAR, 0.7, tokens=200)]
    here += [line("drift", world, TWO_VIEWS, 0.79) for world in FRESH[:2]]
    equal = [line("starved", 3, "gate-or-bound", 0.41), line("drift", 3, GRPO, 0.5)]
    seeds = [line("drift", FRESH[0], OURS, 0.3, seed=2), line("drift", FRESH[0], GRPO, 0.45, seed=1)]

    write_pages([page], Lines(here, on_verl, longer, seeds, equal), PLAN, tmp_path)

    text = page.read_text(encoding="utf-8")
    assert "| *drift* | 50.0 | 80.0 | 80.5 | +30.5 (" in text
    assert ") | 10 | hindsight on successes: holds |" in text
    assert "| *drift* | hindsight on successes | +0.5 (+0.2 to +0.8): holds |" in text
    assert "| GRPO | 75.0 / 50.0 (2) |" in text
    assert "| *drift* | 101 | two views + rescue | 80.0 % / 0.10 | 70.0 % / 0.20 |" in text
    assert "| *drift* | GRPO | 0.0 | 60.0 | 50.0 | 70.0 | 0.10 | 90.0 | 50.0 | 2 |" in text
    ours = "90.0; +20.0 (+20.0 to +20.0)"
    assert f"| *drift* | two views + rescue | 0.0 | 60.0 | 50.0 | {ours} | 0.10 | 90.0 | 50.0 | 2 |" in text
    assert "| *drift* | 101 | GRPO | 50.0 | 45.0 |  |" in text
    assert "| *drift* | 101 | two views + rescue | 80.0 |  | 30.0 |" in text
    assert "| *drift* | two views + rescue | +31.0 (+31.0 to +31.0) | +30.0 (+30.0 to +30.0) |" in text
    assert "| *drift* | SAAR | 70.0 | +20.0 | -10.0 | 0.10 | 2.00 | 1 |" in text
    assert "| *drift* | 0.25 | 0.25 | 0.25 | 0.25 | 0.25 | +30.5" in text
    assert "| *drift* | +1.5 (-1.7 to +4.7) | 2 |\n| all | +1.5 (-1.7 to +4.7) | 2 |" in text
    assert "| method | *drift* 3 | *starved* 3 |" in text
    assert "| two views, gate or bound |  | 41.0 / 50.0; 0 |" in text
    assert "0 of its 288 runs are kept." in text
    assert "| 101 | GRPO | 0.0 | 40.0 | 2.00 → 1.50 | 10.0 → 90.0 | 50.0 | 90 | 2 |" in text
    for figure in (FIGURE, LONGER_FIGURE):
        assert b"two views + rescue" in (tmp_path / figure).read_bytes()
