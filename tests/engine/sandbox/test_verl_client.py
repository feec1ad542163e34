"""verl's published client of SandboxFusion, unchanged, against our endpoint. Runs where verl is installed."""

from __future__ import annotations

import asyncio
import json

import pytest

from cleaner_sandbox import Node, NodeConfig
from tests.nodes import asynchronous, served

sandbox_fusion = pytest.importorskip("verl.utils.reward_score.sandbox_fusion", reason="verl is not installed")


@asynchronous
async def test_verls_code_reward_scores_programs_by_our_node() -> None:
    cases = json.dumps({"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["2", "4", "6", "8"]})
    right = "```python\nprint(2 * int(input()))\n```"
    half = "```python\nn = int(input())\nprint(2 * n if n > 2 else 0)\n```"
    mixed = (
        "```python\nn = int(input())\nif n == 1: raise ValueError\nif n == 2:\n    while True: pass\nprint(2 * n)\n```"
    )
    function = {"inputs": ["[1, 2]\n3"], "outputs": ["[1, 2, 3]"], "fn_name": "add"}

    async with Node(NodeConfig(slots=4)) as node, served(node) as (url, _):

        def score(completion: str, tests: object) -> tuple[float, list[str]]:
            value, details = sandbox_fusion.compute_score(
                f"{url}/run_code", None, 512, completion, tests, continuous=True, timeout=1
            )
            return value, [each["status"] for each in details]

        assert await asyncio.to_thread(score, right, cases) == (1.0, ["success"] * 4)
        assert (await asyncio.to_thread(score, half, cases))[0] == 0.5
        assert await asyncio.to_thread(score, mixed, cases) == (
            0.5,
            ["runtime_error", "timeout", "success", "success"],
        )
        program = "```python\ndef add(items, item):\n    return items + [item]\n```"
        assert await asyncio.to_thread(score, program, function) == (1.0, ["success"])
