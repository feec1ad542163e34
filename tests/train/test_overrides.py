from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cleaner_rl.train.recipe.enums import Method
from cleaner_rl.train.recipe.load import to_recipe
from cleaner_rl.train.verl.overrides import as_arguments, environment, overrides
from cleaner_rl.train.verl.settings import template_of
from tests.train.recipes import ON_CPU, values

ACTOR = "actor_rollout_ref.actor"
FOLDER = Path("/runs/example")
CPU = {"verl": {**ON_CPU, "trainer": {"n_gpus_per_node": 2}}}


def test_methods_differ_in_the_method_alone() -> None:
    """Baselines run with the very same settings of verl's, down to the sampler and its poll."""
    everything = [
        overrides(to_recipe(values(method=method, batch={"dynamic_sampling": method is not Method.GRPO})), FOLDER)
        for method in Method
        if not method.two_views  # they have more rows
    ]
    for settings in everything:
        # The engine's window must hold the lookahead, where there is one; GRPO has no dynamic sampling.
        del settings["actor_rollout_ref.rollout.max_model_len"]
        del settings["algorithm.filter_groups.enable"]
    assert all(settings == everything[0] for settings in everything)


def test_the_group_that_verl_sees_is_the_one_that_is_kept() -> None:
    settings = overrides(to_recipe(values(method="roc")), FOLDER)
    assert settings["actor_rollout_ref.rollout.n"] == 16


@pytest.mark.parametrize(
    ("method", "rescue", "rows"),
    [
        ("hindsight", {"rows": "join"}, 17),
        ("hindsight", {"rows": "replace"}, 16),
        ("hindsight+roc", {"rows": "join"}, 16),
        ("hindsight", None, 16),
    ],
)
def test_an_update_has_room_for_a_rescue_that_joins(method: str, rescue: dict[str, str] | None, rows: int) -> None:
    settings = overrides(to_recipe(values(method=method, rescue=rescue)), FOLDER)
    assert settings["actor_rollout_ref.rollout.n"] == rows


@pytest.mark.parametrize("spelling", [{"trainer": {"balance_batch": False}}, {"trainer.balance_batch": False}])
def test_verls_own_settings_have_the_last_word(spelling: dict[str, object]) -> None:
    settings = overrides(to_recipe(values(verl=spelling)), FOLDER)
    assert settings["trainer.balance_batch"] is False


def test_the_docs_configuration_of_verls_is_passed_on() -> None:
    page = (Path(__file__).parents[2] / "docs/train.md").read_text()
    block = page.partition("```yaml\n")[2].partition("```")[0]
    settings = overrides(to_recipe(values(**yaml.safe_load(block))), FOLDER)
    assert settings["actor_rollout_ref.rollout.max_num_seqs"] == 256
    assert settings["trainer.balance_batch"] is True
    assert settings["+ray_kwargs.ray_init.include_dashboard"] is False


def test_a_setting_of_ours_can_be_overruled_once() -> None:
    key = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    settings = overrides(to_recipe(values(verl={key: "mine.Manager"})), FOLDER)
    assert [name for name in settings if key in name] == [f"+{key}"]
    assert settings[f"+{key}"] == "mine.Manager"


def test_evaluation_is_drawn_as_it_is_told_whatever_training_is() -> None:
    where = "actor_rollout_ref.rollout"
    usual = overrides(to_recipe(values()), FOLDER)
    assert (usual[f"{where}.val_kwargs.temperature"], usual[f"{where}.val_kwargs.top_p"]) == (1.0, 1.0)
    verl = {where: {"val_kwargs": {"temperature": 0.8, "top_p": 0.6}}}
    other = overrides(to_recipe(values(verl=verl)), FOLDER)
    assert (other[f"{where}.val_kwargs.temperature"], other[f"{where}.val_kwargs.top_p"]) == (0.8, 0.6)
    assert (other[f"{where}.temperature"], other[f"{where}.top_p"]) == (1.0, 1.0)


def test_steps_that_are_asked_for_arent_cut_short_by_epochs() -> None:
    def ends(steps: int, **verl: int) -> tuple[object, object]:
        settings = overrides(to_recipe(values(run={"steps": steps}, verl={"trainer": verl})), FOLDER)
        return settings["trainer.total_training_steps"], settings["trainer.total_epochs"]

    assert ends(400) == (400, 400)  # an epoch has one step at the least
    assert ends(0, total_epochs=3) == (None, 3)


def test_a_reference_model_takes_as_many_sequences_as_the_actor() -> None:
    settings = overrides(
        to_recipe(values(verl={f"{ACTOR}.kl_loss_coef": 0.001, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2})), FOLDER
    )
    assert settings["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] == 2
    assert settings[f"{ACTOR}.use_kl_loss"] is True
    by_switch = overrides(to_recipe(values(verl={f"{ACTOR}.use_kl_loss": True})), FOLDER)
    assert by_switch[f"{ACTOR}.kl_loss_coef"] == 0.001
    assert "+actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype" in by_switch


def test_old_checkpoints_are_removed_unless_all_are_asked_for() -> None:
    key = "trainer.max_actor_ckpt_to_keep"
    assert overrides(to_recipe(values()), FOLDER)[key] == 3
    assert overrides(to_recipe(values(verl={key: None})), FOLDER)[key] is None


def test_nothing_is_evaluated_without_held_out_tasks() -> None:
    verl = {"trainer.test_freq": 5}
    assert overrides(to_recipe(values(verl=verl)), FOLDER)["trainer.test_freq"] == -1
    tasks = {"train": ["a.parquet"], "held_out": ["b.parquet"]}
    assert overrides(to_recipe(values(verl=verl, tasks=tasks)), FOLDER)["trainer.test_freq"] == 5


def test_weights_that_are_offloaded_take_the_optimizer_along() -> None:
    settings = overrides(to_recipe(values(verl={f"{ACTOR}.fsdp_config.param_offload": True})), FOLDER)
    assert settings[f"{ACTOR}.fsdp_config.optimizer_offload"] is True


def test_options_of_the_chat_template_reach_verl_and_our_own_renderer() -> None:
    recipe = to_recipe(values(verl={"data": {"apply_chat_template_kwargs": {"enable_thinking": False}}}))
    assert overrides(recipe, FOLDER)["+data.apply_chat_template_kwargs.enable_thinking"] is False
    assert template_of(recipe) == {"enable_thinking": False}


def test_a_cluster_that_is_there_keeps_its_own_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    settings = overrides(to_recipe(values(**CPU)), FOLDER)
    assert not [key for key in settings if "ray_init" in key]
    assert settings["trainer.device"] == "cpu"


def test_a_processor_has_settings_and_an_environment_of_its_own() -> None:
    recipe = to_recipe(values(**CPU))
    settings = overrides(recipe, FOLDER)
    assert settings["trainer.device"] == "cpu"
    assert settings["+ray_kwargs.ray_init.num_gpus"] == 2
    # A seeded request whose prefill is cut ends vLLM-CPU.
    assert settings["actor_rollout_ref.rollout.enable_chunked_prefill"] is False
    assert settings["actor_rollout_ref.rollout.max_num_batched_tokens"] == recipe.window > 4_096
    assert environment(recipe)["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(to_recipe(values()))


def test_values_are_written_as_hydra_reads_them() -> None:
    written = as_arguments({"a": "plain/word", "b": None, "c": [1, "x y"], "d": True, "e": "it's {odd}", "f": 1e-6})
    assert written == ["a=plain/word", "b=null", 'c=[1, "x y"]', "d=true", 'e="it\'s {odd}"', "f=1e-06"]


def test_adapters_reach_verl_merged_and_its_processes_load_what_completes_them() -> None:
    recipe = to_recipe(values(verl={"actor_rollout_ref.model": {"lora_rank": 8, "lora_alpha": 16}}))
    settings = overrides(recipe, FOLDER)
    assert settings["actor_rollout_ref.model.lora_rank"] == 8
    assert settings["actor_rollout_ref.model.lora_alpha"] == 16
    assert settings["actor_rollout_ref.model.lora.merge"] is True
    modules = environment(recipe)["VERL_USE_EXTERNAL_MODULES"].split(",")
    assert modules == ["cleaner_rl.train.verl.plugin", "cleaner_rl.train.verl.lora"]

    whole = to_recipe(values(model={"path": "m"}))
    assert not any("lora" in key for key in overrides(whole, FOLDER))
    assert environment(whole)["VERL_USE_EXTERNAL_MODULES"] == modules[0]
