"""The lab's trainer in one process: its loss beside the definition, and a run that is broken off and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from benchmarks.lab.recipes import MICRO_BATCH, ON_CPU, RATE
from cleaner_rl.rollout import Sampling
from cleaner_rl.train import Recipe, to_recipe
from cleaner_rl.train.rows import GraftLogprobs, RowConfig, View, Views, group_rows, to_row
from cleaner_rl.trajectory import Ids, Phase
from cleaner_rl.trajectory.store import read
from tests.builders import answered, failed, worked
from tests.train.parity import CLIP_HIGH, CLIP_LOW, batch, gradient, reference_loss, rows, tiny_model
from tests.train.test_rows import collapsed, graded, group, rescored


def test_the_loss_and_its_gradient_are_those_of_the_definition() -> None:
    import torch

    from benchmarks.lab.local.trainer import Clips, clipped_loss

    made, model = rows(batch()), tiny_model()
    expected = reference_loss(model, made, [row.advantage or 0.0 for row in made])
    total = sum(row.weight * float(row.loss_mask.sum()) for row in made)
    loss = clipped_loss(model, made, Clips(CLIP_LOW, CLIP_HIGH)) / total
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient(model, loss), gradient(model, expected), rtol=1e-6, atol=1e-12)


def test_in_half_the_precision_the_loss_is_nearly_the_same_and_weights_stay_whole() -> None:
    import torch

    from benchmarks.lab.local.trainer import Clips, clipped_loss

    made, model = rows(batch()), tiny_model().float()
    whole, halved = (clipped_loss(model, made, Clips(), dtype) for dtype in (torch.float32, torch.bfloat16))
    assert halved.item() != whole.item()
    expected = gradient(model, whole)
    assert (gradient(model, halved) - expected).norm() < 0.05 * expected.norm()
    assert {each.dtype for each in model.parameters()} == {torch.float32}


def test_a_sequence_mean_weighs_every_row_alike() -> None:
    import torch

    from benchmarks.lab.local.trainer import Clips, clipped_loss, with_equal_rows

    made, model, update = rows(batch()), tiny_model(), Clips()
    means = [clipped_loss(model, [row], update) / int(row.loss_mask.sum()) for row in made]
    equal = [with_equal_rows(row) for row in made]
    total = sum(row.weight * int(row.loss_mask.sum()) for row in equal)
    torch.testing.assert_close(clipped_loss(model, equal, update) / total, torch.stack(means).mean())


def test_settings_beyond_recipes_change_what_they_say_and_nothing_else() -> None:
    from benchmarks.lab.local.beyond import Beyond
    from benchmarks.lab.local.trainer import beyond_recipes

    drawn = group(rescored(collapsed()), graded(failed(), answered(), reward=-1.0))
    made = group_rows(drawn, RowConfig(views=Views.FULL)).rows

    def changed(**settings: Any) -> list[tuple[float, list[bool], list[float]]]:
        found = beyond_recipes(made, drawn, Beyond(**settings))
        return [(row.weight, row.loss_mask.tolist(), row.logprobs.tolist()) for row in found]

    usual = [(row.weight, row.loss_mask.tolist(), row.logprobs.tolist()) for row in made]
    clean, recovery, wrong = usual
    assert [row.view for row in made] == [View.CLEAN, View.RECOVERY, View.CLEAN]
    assert changed() == usual
    assert changed(clean_weight=0.3) == [(0.3, *clean[1:]), recovery, wrong]
    assert changed(recovery_weight=0.5) == [clean, (0.5, *recovery[1:]), wrong]

    start = len(drawn[0].prompt)
    raw = graded(failed(), worked(), answered()).loss_mask()[start:].tolist()
    assert raw != recovery[1]
    assert changed(trains_failed=True) == [clean, (1.0, raw, recovery[2]), wrong]

    kept = [counts and place >= len(failed()) for place, counts in enumerate(wrong[1])]
    assert kept != wrong[1]
    assert changed(spares_failed=True) == [clean, recovery, (1.0, kept, wrong[2])]

    sampled = group_rows(drawn, RowConfig(logprobs=GraftLogprobs.SAMPLED)).rows[0].logprobs.tolist()
    assert changed(importance=1.0) == [(1.0, clean[1], sampled), recovery, wrong]


def test_positive_rows_count_at_most_so_much_for_each_token_of_the_others() -> None:
    from benchmarks.lab.local.trainer import balanced

    drawn = group(rescored(collapsed()), graded(failed(), answered(), reward=-1.0))
    made = group_rows(drawn, RowConfig(views=Views.FULL))
    tokens = [int(row.loss_mask.sum()) for row in made.rows]
    for most in (0.5, 1.0):
        (found,) = balanced([made], most)
        share = most * tokens[2] / (tokens[0] + tokens[1])
        assert share < 1
        expected = [share * (row.advantage or 0.0) for row in made.rows[:2]] + [made.rows[2].advantage]
        assert [row.advantage for row in found.rows] == pytest.approx(expected)
    for most in (100.0, inf):
        assert [row.advantage for row in balanced([made], most)[0].rows] == [row.advantage for row in made.rows]


def test_a_rollout_with_a_void_turn_gives_no_row() -> None:
    from benchmarks.lab.local.beyond import Beyond
    from benchmarks.lab.local.trainer import beyond_recipes, is_void

    whole, void = rescored(collapsed()), graded(answered("Hm."), answered(), reward=-1.0)
    answer = replace(whole.info, answer="2")
    drawn = group(replace(whole, info=answer), replace(void, info=answer), void)
    assert [is_void(each) for each in drawn] == [False, True, True]
    rows = group_rows(drawn, RowConfig(views=Views.FULL)).rows
    kept = list(beyond_recipes(rows, drawn, Beyond(drops_void=True)))
    assert [(row.key.rollout, row.advantage) for row in kept] == [
        (row.key.rollout, row.advantage) for row in rows if row.key.rollout == 0
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bound", [None, 0.3])
def test_mass_two_an_open_gate_and_any_share_of_positive_tokens_are_two_views_of_today(bound: float | None) -> None:
    """From the configuration of kept runs; a gate that no vote opens is the bound."""
    import torch

    from benchmarks.lab.local.beyond import Beyond, GateConfig
    from benchmarks.lab.local.runs import WorldRun
    from benchmarks.lab.local.trainer import LocalTrainer
    from benchmarks.lab.local.worlds import World

    torch.set_num_threads(1)
    gate = GateConfig(bound=inf) if bound is None else GateConfig(bound=bound, prior=-inf)
    world = World("starved", 2)
    world.make()
    kept = WorldRun(world, "two-views", 3e-4).recipe(1)
    small = replace(kept, tasks=replace(kept.tasks, held_out=[]), batch=replace(kept.batch, prompts=8, mini_batch=4))

    def trained(beyond: Beyond, **purify: Any) -> tuple[dict[str, bytes], list[Any]]:
        with TemporaryDirectory(dir="/var/tmp") as folder:  # runs of the sandbox can't see /tmp
            run = replace(small.run, folder=folder)
            trainer = LocalTrainer(replace(small, run=run, purify=replace(small.purify, **purify)), beyond)
            asyncio.run(trainer.train(lambda _: None))
            weights = {name: each.detach().numpy().tobytes() for name, each in trainer.model.named_parameters()}
        return weights, [replace(each, cpu_seconds=0) for each in trainer.costs.values()]

    assert small.purify.max_logprob_gap == 0.3
    today, (cost,) = trained(Beyond(), max_logprob_gap=bound)
    now, (gated,) = trained(Beyond(gate=gate, most_positive=inf), max_logprob_gap=None, mass=2.0)
    assert now == today
    assert gated.judged > 0
    assert gated.opened == (gated.judged if bound is None else 0)
    assert replace(gated, judged=0, opened=0) == cost


def test_mini_batches_hold_whole_groups() -> None:
    from benchmarks.lab.local.trainer import parts

    groups = [group_rows(group, RowConfig()) for group in batch()]
    assert [len(part) for part in parts(groups * 4, 2)] == [4, 4]


def recipe(world: Path, folder: Path, steps: int) -> Recipe:
    values: dict[str, Any] = {
        "name": "local",
        "method": "hindsight",
        "model": {"path": str(world / "model")},
        "tasks": {
            "train": [str(world / "train.parquet")],
            "held_out": [str(world / "train.parquet")],
            "prompt": str(world / "prompt.toml"),
        },
        "budget": {"prompt_tokens": 256, "response_tokens": 512, "turns": 4, "overlong_buffer": 0},
        "batch": {"prompts": 4, "mini_batch": 2, "rollouts": 4, "dynamic_sampling": False},
        "sandbox": {"environment": str(world / "kit"), "cpu_seconds": 0.2, "memory_mb": 256, "slots": 2},
        "run": {"steps": steps, "folder": str(folder)},
        "verl": {**ON_CPU, RATE: 1e-3, MICRO_BATCH: 4, "trainer.save_freq": 1, "trainer.test_freq": 2},
    }
    return to_recipe(values)


@pytest.mark.timeout(300)
def test_a_run_that_is_broken_off_goes_on_with_the_next_tasks() -> None:
    import torch

    from benchmarks.lab.local.trainer import LocalTrainer
    from benchmarks.toy.smallest import make

    torch.set_num_threads(1)
    with TemporaryDirectory(dir="/var/tmp") as folder:  # runs of the sandbox can't see /tmp
        home = Path(folder)
        world = make(home / "world")
        for name, steps in (("whole", 2), ("parts", 1), ("parts", 2)):
            asyncio.run(LocalTrainer(recipe(world, home / name, steps)).train())
        whole, parts = (list(read(home / name / "local" / "trajectories")) for name in ("whole", "parts"))
        metrics = [json.loads(line) for line in (home / "parts" / "local" / "metrics.jsonl").read_text().splitlines()]
    training = [each for each in parts if each.key.phase is Phase.TRAINING]
    assert {each.key for each in training} == {each.key for each in whole if each.key.phase is Phase.TRAINING}
    assert len(training) == 2 * 4 * 4
    assert any(each.edits for each in training)
    assert all(to_row(each) is not None for each in training)  # type: ignore[arg-type]
    assert [line["step"] for line in metrics] == [1, 2]
    assert {each.key.step for each in parts if each.key.phase is Phase.EVALUATION} == {0, 1, 2}


def test_rows_without_an_advantage_have_no_gradient_and_are_not_computed() -> None:
    import torch

    from benchmarks.lab.local.trainer import Clips, batches, clipped_loss

    made, model = [replace(row, advantage=0.0) for row in rows(batch())], tiny_model()
    assert gradient(model, clipped_loss(model, made, Clips())).count_nonzero() == 0
    lengths = [len(row.prompt_ids) + len(row.response_ids) for some in batches(made) for row in some]
    assert lengths == sorted(lengths)
    assert len(lengths) == len(made)
    assert torch.is_tensor(gradient(model, clipped_loss(model, made, Clips())))


def tiny_qwen3() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).float().eval()


def tiny_llama() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).float().eval()


def test_frozen_layers_and_embeddings_are_not_trained() -> None:
    from benchmarks.lab.local.trainer import trained

    model = tiny_llama()
    assert len(trained(model, 0)) == len(list(model.parameters()))
    chosen = {id(each) for each in trained(model, 1)}
    names = {name for name, each in model.named_parameters() if id(each) in chosen}
    assert names == {name for name, _ in model.named_parameters() if "embed" not in name and "layers.0." not in name}


@pytest.mark.parametrize(
    ("made", "halved", "apart"), [(tiny_qwen3, False, 1e-5), (tiny_llama, False, 1e-5), (tiny_llama, True, 0.05)]
)
def test_the_engine_gives_the_log_probs_of_the_model_over_turns_that_share_a_cache(
    made: Callable[[], Any], halved: bool, apart: float
) -> None:
    import torch

    from benchmarks.lab.local.engine import TinyEngine

    model = made()
    engine = TinyEngine(model, 7, dtype=torch.bfloat16 if halved else torch.float32)
    prompts = [np.arange(1 + number, 12 + 2 * number, dtype=np.int32) % 64 for number in (0, 1, 1, 5)]

    def expected(prompt: Ids, ids: Ids) -> Any:
        both = torch.from_numpy(np.concatenate([prompt, ids]).astype(np.int64))[None]
        with torch.inference_mode():
            logprobs = model(both).logits[0].log_softmax(-1)
        return logprobs[len(prompt) - 1 : -1].gather(1, both[0, len(prompt) :, None])[:, 0].numpy()

    async def trajectory(number: int, prompt: Ids) -> list[Ids]:
        drawn = []
        for turn in range(3):
            completion = await engine.sample(
                prompt, max_tokens=20, seed=turn, sampling=Sampling(), stop_ids=(3,), request=str(number)
            )
            assert completion.version == 7
            assert completion.logprobs_T is not None
            np.testing.assert_allclose(completion.logprobs_T, expected(prompt, completion.ids_T), atol=apart)
            scores = await engine.score(prompt, completion.ids_T, request=str(number))
            np.testing.assert_allclose(scores.logprobs, completion.logprobs_T, atol=apart)
            drawn.append(completion.ids_T)
            # The second turn goes back to an earlier prefix, as a repair does.
            prompt = np.concatenate(
                [prompt[: -turn or None], completion.ids_T[turn:], np.array([9, 8, 7 - turn], np.int32)]
            )
        return drawn

    async def all_of_them() -> list[list[Ids]]:
        return await asyncio.gather(*[trajectory(number, prompt) for number, prompt in enumerate(prompts)])

    drawn = asyncio.run(all_of_them())
    # Equal prompts and seeds give equal tokens, whatever the company.
    assert [each.tolist() for each in drawn[1]] == [each.tolist() for each in drawn[2]]
    assert engine.sampled == sum(len(each) for one in drawn for each in one)


def test_the_engine_draws_by_the_models_odds_and_within_the_nucleus() -> None:
    import torch

    from benchmarks.lab.local.engine import TinyEngine, nucleus

    engine = TinyEngine(tiny_qwen3())
    prompt = np.array([5, 6, 7], np.int32)

    async def firsts(count: int) -> list[int]:
        asked = [
            engine.sample(prompt, max_tokens=1, seed=seed, sampling=Sampling(), stop_ids=(), request=str(seed))
            for seed in range(count)
        ]
        return [int(made.ids_T[0]) for made in await asyncio.gather(*asked)]

    async def odds() -> list[float]:
        scores = [await engine.score(prompt, np.array([token], np.int32), request="") for token in range(64)]
        return [float(np.exp(each.logprobs[0])) for each in scores]

    count = 4_000
    found, expected = np.bincount(asyncio.run(firsts(count)), minlength=64) / count, np.array(asyncio.run(odds()))
    assert np.abs(found - expected).max() < 5 * (expected.max() / count) ** 0.5
    kept = nucleus(torch.tensor([[0.1, 0.5, 0.3, 0.1]]).log(), 0.6)
    torch.testing.assert_close(kept.softmax(-1), torch.tensor([[0.0, 0.625, 0.375, 0.0]]))


def test_a_program_that_was_run_is_not_run_again() -> None:
    from benchmarks.lab.local.programs import RememberingSandbox
    from cleaner_sandbox import RunOutcome, RunRequest, RunResult, RunStatus

    ran: list[str] = []

    class Node:
        async def run(self, request: RunRequest) -> RunOutcome:
            ran.append(request.code)
            return RunOutcome(RunResult(RunStatus.TIMEOUT if "while" in request.code else RunStatus.OK, "1\n"))

    known: dict[str, RunOutcome] = {}
    sandbox = RememberingSandbox(Node(), known)  # type: ignore[arg-type]

    async def twice(code: str) -> None:
        await asyncio.gather(sandbox.run(code), sandbox.run(RunRequest(code)))
        await sandbox.run(code)

    asyncio.run(twice("print(1)"))
    assert ran == ["print(1)"]
    asyncio.run(twice("while 1: pass"))
    assert ran.count("while 1: pass") == 2
    assert sandbox.asked == 6
    assert list(known) == ["print(1)"]
    asyncio.run(RememberingSandbox(Node(), known).run("print(1)"))  # type: ignore[arg-type]
    assert ran.count("print(1)") == 1


def test_a_batch_waits_for_the_programs_that_run_and_is_drawn_at_once() -> None:
    from benchmarks.lab.local.engine import TinyEngine
    from benchmarks.lab.local.programs import RememberingSandbox
    from cleaner_sandbox import RunOutcome, RunRequest, RunResult, RunStatus

    class Node:
        async def run(self, request: RunRequest) -> RunOutcome:
            await asyncio.sleep(float(request.code))
            return RunOutcome(RunResult(RunStatus.OK, ""))

    sandbox = RememberingSandbox(Node())  # type: ignore[arg-type]
    engine = TinyEngine(tiny_qwen3(), ready=sandbox.idle)
    drawn: list[int] = []
    draw = engine._draw

    def counted(batch: Any) -> None:
        drawn.append(len(batch))
        draw(batch)

    engine._draw = counted  # type: ignore[method-assign]

    async def rollout(number: int) -> None:
        for turn in range(2):
            prompt = np.array([5 + turn, 6], np.int32)
            await engine.sample(
                prompt, max_tokens=2, seed=number, sampling=Sampling(), stop_ids=(), request=str(number)
            )
            await sandbox.run(str(0.01 * number))

    async def all_of_them() -> None:
        await asyncio.gather(*[rollout(number) for number in range(4)])

    asyncio.run(all_of_them())
    assert drawn == [4, 4]
