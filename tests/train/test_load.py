from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.purify import PurifyScope, Schedule
from cleaner_rl.resample import PlainConfig, RocConfig
from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.load import read_recipe, to_recipe, to_values
from cleaner_rl.train.recipe.moved import MOVED
from cleaner_rl.train.recipe.settings import PurifySettings, RecipeError, RescueSettings
from cleaner_rl.train.rows import Views
from cleaner_rl.train.verl.overrides import overrides
from tests.train.recipes import values

YAML = """
name: example
method: saar
model: {path: some/model}
tasks: {train: [train.parquet]}
verl: {actor_rollout_ref.actor.optim: {lr: 2e-6}}
purify: {scope: successful, schedule: [[0, 1.0], [100, 0.5]]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(YAML)
    return path


def test_a_file_becomes_typed_data(file: Path) -> None:
    recipe = read_recipe(file)

    assert recipe.method is Method.SAAR
    assert recipe.verl == {"actor_rollout_ref.actor.optim": {"lr": 2e-6}}
    assert recipe.purify.scope is PurifyScope.SUCCESSFUL
    assert recipe.purify.config().probability == Schedule(((0, 1.0), (100, 0.5)))


def test_settings_are_laid_over_the_file(file: Path) -> None:
    lr = "actor_rollout_ref.actor.optim.lr"
    recipe = read_recipe(file, ["batch.prompts=64", "method=dapo", "run.folder=/r", f"verl.{lr}=1e-5"])

    assert (recipe.batch.prompts, recipe.method, recipe.run.folder) == (64, Method.DAPO, "/r")
    assert overrides(recipe, Path())[lr] == 1e-5


def test_paths_may_name_variables_of_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(YAML.replace("train.parquet", "$DATA/train.parquet"))
    monkeypatch.setenv("DATA", "/data")
    assert read_recipe(file).tasks.train == ["/data/train.parquet"]
    monkeypatch.delenv("DATA")
    with pytest.raises(RecipeError, match="needs the environment variable DATA"):
        read_recipe(file)
    assert read_recipe(file, ["tasks.train=[other.parquet]"]).tasks.train == ["other.parquet"]


def test_what_is_here_has_its_whole_path_and_all_else_stays(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Ray cluster that is there already, verl's processes have another working directory than the command."""
    for name in ("train.parquet", "token", "mine.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    held_out = "tasks.held_out=[~/train.parquet, hdfs://far/away.parquet, missing.parquet]"
    recipe = read_recipe(file, [held_out, "tasks.prompt=mine.toml", "sandbox.token_file=~/token"])

    here = str(tmp_path / "train.parquet")
    assert recipe.tasks.train == [here]
    assert recipe.tasks.held_out == [here, "hdfs://far/away.parquet", "missing.parquet"]
    assert recipe.tasks.prompt == str(tmp_path / "mine.toml")
    assert recipe.sandbox.token_file == str(tmp_path / "token")
    assert recipe.model.path == "some/model"


def test_a_setting_for_verl_keeps_its_dots(file: Path) -> None:
    recipe = read_recipe(file, ["verl.trainer.balance_batch=false"])
    assert recipe.verl["trainer.balance_batch"] is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baatch": {}}, "there is no setting 'baatch'; did you mean 'batch'?"),
        ({"batch": {"promts": 3}}, "there is no setting 'batch.promts'; did you mean 'batch.prompts'?"),
        ({"rescue": {"shar": 1}}, "there is no setting 'rescue.shar'; did you mean 'rescue.share'?"),
        ({"run": {"folders": "r"}}, "there is no setting 'run.folders'; did you mean 'run.folder'?"),
        ({"stages": [{"name": "a", "step": 1}]}, "there is no setting 'stages.step'; did you mean 'stages.steps'?"),
        ({"batch": {"prompts": "many"}}, "batch.prompts: expected 'int', got 'str'"),
        ({"method": "cleaner"}, "method is 'cleaner'; it can be grpo, dapo, "),
        ({"purify": {"scope": 3}}, "purify.scope is '3'; it can be all, successful"),
        ({"purify": {"measure": "foo"}}, "purify.measure is 'foo'; it can be ast, difflib"),
        ({"sandbox": {"zzz": 1}}, "there is no setting 'sandbox.zzz'; it can hold: addresses, slots"),
    ],
)
def test_what_isnt_a_setting_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        to_recipe(values(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "saar", "purify": {"views": "one"}}, "needs repairs in hindsight, but the method is saar"),
        ({"method": "saar", "purify": {"mass": 2.0}}, "purify.mass weighs repairs in hindsight"),
        ({"method": "two-views", "purify": {"mass": 0}}, "give a number above 0"),
        ({"method": "two-views", "purify": {"views": "clean"}}, "take method hindsight, or full or one"),
        ({"method": "two-views+rescue", "rescue": None}, "take method two-views"),
        ({"method": "mask", "rescue": {}}, "which repairs none: take one of saar, hindsight, two-views"),
        ({"batch": {"prompts": 100}}, "can't be cut into mini-batches of 32"),
        ({"roc": {"sample": 8}}, "fewer than the batch.rollouts=16"),
        ({"roc": {"min_positive": 9, "min_negative": 9}}, "don't fit into keep=16"),
        ({"budget": {"response_tokens": 4_096}}, "shorter than budget.response_tokens"),
        ({"purify": {"attempts": 0}}, "needs at least 1"),
        ({"purify": {"max_logprob_gap": 0.0}}, "give a positive number"),
    ],
)
def test_what_cant_be_run_is_refused_with_the_reason(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        to_recipe(values(**changes))


@pytest.mark.parametrize(("text", "message"), [("a: [", "can.t be read as YAML"), ("- 1", "holds no settings")])
def test_a_file_without_settings_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / "recipe.yaml")


def nine_times(opening: str, closing: str) -> str:
    """Aliases to aliases: eight lines that stand for 9 ** 9 values."""
    lines = ["a: &a {x: 1}"]
    for before, name in pairwise("abcdefghi"):
        lines.append(f"{name}: &{name} {opening}{', '.join([f'*{before}'] * 9)}{closing}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nine_times("[", "]"), r"write out what the alias \*a in line 2"),
        (nine_times("{<<: [", "]}"), r"alias \*a in line 2"),
        ("a: &a [*a]", r"alias \*a in line 1"),
        ("[" * 100_000, "more than 20 deep in line 1"),
        ("- " * 10_000, "more than 20 deep"),
        ("seed: " + "9" * 5_000, "4300 digits"),
        ("seed: 2001-99-99", "month"),
        ("seed: !!int ''", "index"),
        ("method: [saar]", "method is"),
        ("# " + "x" * (1 << 20), "1,048,576 bytes"),
    ],
)
def test_finding_yaml_that_was_made_to_harm_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("old", MOVED)
def test_a_setting_that_moved_is_refused_with_its_new_name(old: str) -> None:
    section, _, key = old.partition(".")
    inner, _, last = key.partition(".")
    held = {"path": "m", inner: {last: 1} if last else 1}
    with pytest.raises(RecipeError, match=f"'.*' is now '{re.escape(MOVED[old])}'" if not last else "is now"):
        to_recipe(values(**{section: held}))


def test_what_is_wrong_is_named_with_its_file(file: Path) -> None:
    with pytest.raises(RecipeError, match=rf"^{re.escape(str(file))}: batch.prompts is 0; it must be 1 or more$"):
        read_recipe(file, ["batch.prompts=0"])


@pytest.mark.parametrize("setting", ["batch.prompts", "=3", "name.of=3"])
def test_a_setting_that_sets_nothing_is_refused(file: Path, setting: str) -> None:
    with pytest.raises(RecipeError):
        read_recipe(file, [setting])


@given(method=st.sampled_from(Method), seed=st.integers(0, 2**31), prompts=st.integers(1, 9).map(lambda k: 32 * k))
def test_a_recipe_survives_its_plain_form(method: Method, seed: int, prompts: int) -> None:
    batch = {"prompts": prompts, "dynamic_sampling": method != "grpo"}
    recipe = to_recipe(values(method=method, seed=seed, batch=batch))
    assert to_recipe(to_values(recipe)) == recipe


@given(st.sampled_from(Method))
def test_the_method_decides_how_groups_are_made(method: Method) -> None:
    recipe = to_recipe(values(method=method, batch={"dynamic_sampling": method != "grpo"}))

    assert isinstance(recipe.group_config(), RocConfig if "roc" in method else PlainConfig)
    assert recipe.sampled == (32 if "roc" in method else 16)
    assert method.saar == method.startswith("saar")
    assert method.hindsight == method.startswith(("hindsight", "two-views"))


def test_two_views_bring_their_settings_which_a_recipe_overrides() -> None:
    recipe = to_recipe(values(method="two-views+rescue", purify={"attempts": 2, "max_logprob_gap": 0.5}))
    assert recipe.purify == PurifySettings(2, scope=PurifyScope.SUCCESSFUL, views=Views.FULL, max_logprob_gap=0.5)
    assert recipe.rescue == RescueSettings()
    alone = to_recipe(values(method="two-views", purify={"max_logprob_gap": None}))
    assert (alone.rescue, alone.purify.max_logprob_gap) == (None, None)
    written_out = {"views": "full", "scope": "successful", "attempts": 2, "max_logprob_gap": 0.5}
    same = to_recipe(values(method="hindsight", purify=written_out, rescue={}))
    assert replace(same, method=recipe.method) == recipe


def test_a_method_with_its_settings_gives_way_to_another_method(file: Path) -> None:
    read = [read_recipe(file, [f"method={method}"]) for method in ("two-views+rescue", "dapo")]
    assert [(each.purify.views, each.rescue) for each in read] == [(Views.FULL, RescueSettings()), (Views.CLEAN, None)]
