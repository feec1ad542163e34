"""Episodes of a real environment of verifiers, with a scripted server in the place of vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rollout.scripted import call, logprobs_of
from tests.verifiers.serving import BREAKS, ScriptedServer, serving

RIGHT, WRONG = call("print(0 + 42)"), call("print(0 + fourty)", "First the sum.\n")
REPAIRED = [WRONG, RIGHT, "The answer is 42"]
CLEAN = [RIGHT, "The answer is 42"]
FALSE = [RIGHT, "The answer is 7"]
FAILED = [WRONG, "The answer is 7"]
pytestmark = pytest.mark.timeout(120)


def played(
    model: str, scripts: Sequence[Sequence[str]], sampling: Any = None, env_class: Any = None, **settings: Any
) -> Any:
    """Play one episode; return it as a trainer gets it, from an environment server, and the model's server.

    With `env_class` the episode is the environment's own.
    """
    import verifiers.v1 as vf
    from verifiers.v1.serve import EnvClient, EnvServer

    async def play() -> Any:
        served = {key: settings.pop(key) for key in ("scores",) if key in settings}
        async with serving(model, scripts, **served) as server:
            config = vf.resolve_env_config(
                {
                    "taskset": {"id": "cleaner-sums"},
                    "agent": {"runtime": {"type": "subprocess"}},
                    **settings,
                }
            )
            client = vf.TrainClientConfig(base_url=server.url, renderer={"name": "qwen3"}, api_key_var="NO_KEY")
            context = vf.ModelContext(model, client, vf.Sampling(**(sampling or {})))
            if env_class is not None:
                env = env_class(config)
                async with env.serving():
                    return await env.run_episode(next(iter(env.taskset)), context), server
            served_env = EnvServer(config, "tcp://127.0.0.1:0")
            serves = asyncio.create_task(served_env.run())
            trainer = EnvClient(served_env.address)
            data = next(iter(served_env.env.taskset)).data.model_dump(mode="json")
            try:
                return await trainer.run(client, model, context.sampling, data), server
            finally:
                await trainer.close()
                serves.cancel()
                await asyncio.gather(serves, return_exceptions=True)

    return asyncio.run(play())


def check_rows(episode: Any) -> None:
    """Every trained token has the log-prob that the server gives it after the tokens that now precede it."""
    for trace in episode.traces:
        if not trace.agent.trainable:
            continue
        (branch,) = trace.branches
        ids, mask = np.array(branch.token_ids, np.int32), np.array(branch.sampled_mask)
        expected = np.concatenate([[0.0], logprobs_of(ids[:1], ids[1:])])
        assert len(mask) == len(ids) == len(branch.logprobs)
        np.testing.assert_allclose(np.array(branch.logprobs)[mask], expected[mask], rtol=1e-6)


def session(server: ScriptedServer, trace: Any) -> list[int]:
    """The tokens that were sampled last in a trace, with all before them."""
    return server.seen[trace.info.get("cleaner_rl", {}).get("trace", trace.id)][-1]


def test_a_rollout_is_repaired_in_finalize(model: str) -> None:
    episode, server = played(model, [REPAIRED], stateless=True)
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.metrics["cleaner_repairs"] == 1
    assert server.scored > 0
    check_rows(episode)
    assert [node.message.role for node in trace.nodes] == ["user", "assistant", "tool", "assistant"]
    assert "fourty" not in trace.nodes[1].message.tool_calls[0].arguments
    assert trace.num_branches == 1
    # What was sampled is kept, and the calls point at the nodes that are there.
    raw = trace.info["cleaner_rl"]["raw_nodes"]
    assert [token for node in raw for token in node["token_ids"]] == session(server, trace)
    assert [each.node for each in trace.calls] == [None, 1, 3]


def test_a_repair_that_the_model_would_hardly_have_tried_is_refused(model: str) -> None:
    script = [[WRONG, call(f"print({40 + number} - {number} + 2)"), "The answer is 42"] for number in range(6)]

    def repaired(**bound: float) -> list[bool]:
        episode, _ = played(model, script, stateless=True, rollouts=6, **bound)
        assert episode.ok, episode.errors
        check_rows(episode)
        return ["fourty" not in trace.nodes[1].message.tool_calls[0].arguments for trace in episode.traces]

    # The server's log-probs are any numbers, so moved tokens lose some in some rollouts and gain some in others.
    assert sum(repaired()) == sum(repaired(max_logprob_gap=10.0)) == 6
    assert 0 < sum(repaired(max_logprob_gap=1e-6)) < 6


REWRITTEN = call("import math\nnumbers = [0, 42]\nprint(math.fsum(numbers))", "I try another way.\n")
THINKING = call("print(0 + 42)", "<think>\nThe name is wrong.\n</think>\n\n")
TWO = f"{RIGHT}\n{call('print(1)', '')}"


@pytest.mark.parametrize(
    ("script", "repairs", "roles"),
    [
        ([WRONG, REWRITTEN, "The answer is 42"], 1, "uata"),  # a replacement
        ([WRONG, WRONG, RIGHT, "The answer is 42"], 1, "uata"),
        ([WRONG, RIGHT, WRONG, RIGHT, "The answer is 42"], 2, "uatata"),
        ([WRONG, THINKING, "<think>\nSo.\n</think>\n\nThe answer is 42"], 1, "uata"),
        ([TWO, WRONG, TWO, "The answer is 42"], 1, "uattatta"),  # two calls in a turn
        ([WRONG, "The answer is 42"], 0, "uata"),  # never corrected
    ],
)
def test_repairs_keep_tokens_and_messages_together(model: str, script: Sequence[str], repairs: int, roles: str) -> None:
    episode, server = played(model, [script], stateless=True)
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.metrics["cleaner_repairs"] == repairs
    assert "".join(node.message.role[0] for node in trace.nodes) == roles
    check_rows(episode)
    for node in trace.nodes:
        text = server.tokenizer.decode(
            [each for each, sampled in zip(node.token_ids, node.mask, strict=True) if sampled]
        )
        assert not node.sampled or (node.message.content or "").strip() in text
        for made in getattr(node.message, "tool_calls", None) or ():
            assert json.dumps(json.loads(made.arguments)["code"]) in text
        assert len(node.is_content) == len(node.token_ids)


@pytest.mark.parametrize("stateless", [True, False])
def test_a_wrong_rollout_stays_as_it_was_sampled_unless_told_otherwise(model: str, stateless: bool) -> None:
    wrong = [call("print(int('42')"), call("print(int('42'))"), "The answer is 41"]
    for settings, repairs in (({}, 0), ({"scope": "all"}, 1)):
        episode, _ = played(model, [wrong], stateless=stateless, **settings)
        assert [trace.metrics["cleaner_repairs"] for trace in episode.traces] == [repairs]


def test_without_the_word_of_the_user_a_repair_needs_a_warrant(model: str) -> None:
    typo = [call("print(int('42')"), call("print(int('42'))"), "The answer is 42"]
    other = [call("import os\nos.mkdir('/tmp/verifiers-test/a/b')"), RIGHT, "The answer is 42"]
    episode, _ = played(model, [typo, other], rollouts=2)
    assert [trace.metrics["cleaner_repairs"] for trace in episode.traces] == [1, 0]
    assert [trace.metrics["cleaner_failed_turns"] for trace in episode.traces] == [0, 1]


def test_a_call_that_is_no_json_is_left_alone(model: str) -> None:
    episode, server = played(model, [["<tool_call>\n{no json\n</tool_call>", "The answer is 42"]], stateless=True)
    (trace,) = episode.traces
    assert trace.metrics["cleaner_repairs"] == 0
    assert list(trace.branches[0].token_ids) == session(server, trace)


def test_a_trace_with_branches_is_left_out_with_words(model: str) -> None:
    from cleaner_rl.train.verifiers import CleanerEnv

    class Branching(CleanerEnv):
        async def finalize(self, task: Any, episode: Any) -> None:
            for trace in episode.traces[:1]:
                trace.nodes[-1].parent = 0
            await super().finalize(task, episode)

    episode, _ = played(model, [CLEAN, CLEAN, FALSE], env_class=Branching, rollouts=3)
    assert [trace.agent.trainable for trace in episode.traces] == [False, True, True]
    episode, _ = played(model, [CLEAN], env_class=Branching)
    assert "branches" in episode.errors[0].message


def test_a_clean_rollout_stays_as_it_was_sampled(model: str) -> None:
    episode, server = played(model, [CLEAN])
    (trace,) = episode.traces
    assert list(trace.branches[0].token_ids) == session(server, trace)
    assert trace.metrics["cleaner_repairs"] == 0
    assert "cleaner_rl" not in trace.info
    assert trace.branches[0].advantages is None  # the trainer compares episodes
    check_rows(episode)


def test_roc_keeps_the_cleanest_successes(model: str) -> None:
    scripts = [REPAIRED, CLEAN, FALSE, CLEAN, FAILED, REPAIRED]
    episode, _ = played(model, scripts, method="roc", rollouts=4, roc={"sample": 6})
    assert episode.ok, episode.errors
    kept = [trace.agent.trainable for trace in episode.traces]
    assert [kept[1], kept[3]] == [True, True]
    assert sum(kept) == 4
    given = [trace.branches[0].advantages for trace in episode.traces]
    assert [each is not None and len(each) > 0 for each in given] == kept
    check_rows(episode)


def test_a_fault_is_in_no_statistic(model: str) -> None:
    episode, _ = played(model, [REPAIRED, [BREAKS], FALSE, CLEAN], rollouts=4, stateless=True)
    assert episode.ok
    assert [error.type for error in episode.errors] == ["ProviderError"]
    assert all(trace.agent.trainable for trace in episode.traces)
    advantages = [max(trace.branches[0].advantages, key=abs) for trace in episode.traces]
    assert advantages == pytest.approx([0.57735, -1.1547, 0.57735], abs=1e-4)
    check_rows(episode)


def test_an_episode_that_broke_as_a_whole_has_failed(model: str) -> None:
    episode, _ = played(model, [[BREAKS], [BREAKS]], rollouts=2)
    assert not episode.ok
    assert not any(trace.agent.trainable for trace in episode.traces)


def test_a_repair_that_can_not_be_rescored_is_a_fault(model: str) -> None:
    episode, _ = played(model, [REPAIRED, FALSE, CLEAN], rollouts=3, stateless=True, scores=False)
    assert [trace.agent.trainable for trace in episode.traces] == [False, True, True]


def test_failed_turns_are_masked_where_they_would_be_reinforced(model: str) -> None:
    episode, server = played(model, [REPAIRED, FAILED], method="mask", rollouts=2)
    right, wrong = episode.traces
    assert not any(right.nodes[1].mask)
    assert list(right.branches[0].token_ids) == session(server, right)
    assert any(wrong.nodes[1].mask)
    check_rows(episode)


def test_one_view_is_trained_on_and_the_trace_holds_it(model: str) -> None:
    scripts = [REPAIRED, REPAIRED, REPAIRED, REPAIRED, FAILED]
    episode, server = played(model, scripts, rollouts=5, stateless=True, views="one")
    assert episode.ok, episode.errors
    *right, wrong = episode.traces
    roles = ["".join(node.message.role[0] for node in trace.nodes) for trace in right]
    assert set(roles) == {"uata", "uatata"}, "with this seed both views are drawn"
    for trace, seen in zip(right, roles, strict=True):
        if seen == "uatata":
            assert list(trace.branches[0].token_ids) == session(server, trace)
            assert not any(trace.nodes[1].mask), "the failed turn is context"
            assert any(trace.nodes[3].mask)
        else:
            assert any(trace.nodes[1].mask)
    assert any(wrong.nodes[1].mask)
    check_rows(episode)


def test_sampling_that_can_not_be_rescored_is_refused(model: str) -> None:
    episode, _ = played(model, [CLEAN], sampling={"temperature": 0.7})
    assert "temperature=0.7" in episode.errors[0].message


def test_the_store_and_the_traces_are_read(model: str, tmp_path: Path) -> None:
    from cleaner_rl.logs import Reading, read_record
    from cleaner_rl.trajectory.store import read
    from cleaner_rl.view import export

    episode, _ = played(model, [REPAIRED], stateless=True, folder=str(tmp_path / "run"))
    stored: Any
    (stored,) = read(tmp_path / "run" / "trajectories")
    assert stored.ids().tolist() == list(episode.traces[0].branches[0].token_ids)
    assert len(stored.edits) == 1
    export(tmp_path / "run", tmp_path / "page.html")
    assert "fourty" in (tmp_path / "page.html").read_text()
    record = json.loads(json.dumps(episode.to_record()))
    assert len(read_record(record, "verifiers", 0, Reading()).turns) == 2


def test_an_evaluation_repairs_nothing(model: str) -> None:
    import verifiers.v1 as vf

    env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": "cleaner-sums"}}))
    task = next(iter(env.taskset))
    described = vf.TraceTask(type="SumTask", data=task.data, key=task.key)
    agent = vf.AgentConfig(client=vf.EvalClientConfig(api_key_var="NO_KEY"), model="none")
    episode = vf.Episode(task=described, traces=[vf.Trace(task=described, agent=vf.AgentInfo(config=agent))])
    before = episode.model_dump()
    asyncio.run(env.finalize(task, episode))
    assert episode.model_dump() == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "saar"}, "doesn't run on verifiers"),
        ({"method": "two-views"}, "and views='one'"),
        ({"method": "roc"}, "rollouts=1 has none"),
        ({"method": "roc", "rollouts": 8, "roc": {"sample": 4}}, "fewer than the rollouts=8"),
        ({"views": "full", "rollouts": 8}, "two rows"),
        ({"views": "one"}, "set method and rollouts"),
        ({"views": "one", "rollouts": 8, "method": "grpo"}, "needs repairs in hindsight"),
    ],
)
def test_settings_are_refused_in_words(settings: dict[str, Any], words: str) -> None:
    import verifiers.v1 as vf

    with pytest.raises(ValueError, match=words):
        vf.resolve_env_config({"taskset": {"id": "cleaner-sums"}, **settings})
