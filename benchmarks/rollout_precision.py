"""Whose rounding it is, where log-probs differ: `python -m benchmarks.rollout_precision FOLDER`.

Repaired trajectories of a model behind vLLM in float32 (`rollout_exactness`), and the same ids in transformers: in
float32 with two kernels for attention, and in float64. Printed is the largest distance of each from each. If two ways
to compute the same model in float32 lie as far apart as vLLM lies from either, no engine can come nearer.

Limits: the angles of position embeddings are float32 in all of them, as transformers and vLLM compute them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import save
from benchmarks.rollout_exactness import forward, load, rolled
from benchmarks.serving import serve
from cleaner_rl.trajectory import RepairMode, TokenSpan, Trajectory

RESULTS = Path(__file__).parent / "results" / "rollout_precision.json"


def float64(folder: Path) -> Any:
    """The model with all of its arithmetic in float64; by themselves its norms would compute in float32."""
    import torch

    def in_full(norm: Any) -> Any:
        return lambda x: norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon))

    model = load(folder, torch.float64, "sdpa")
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = in_full(module)
    return model


def distances(folder: Path, trajectories: list[Trajectory[TokenSpan]]) -> dict[str, float]:
    """The largest over all sampled tokens, for each two ways to compute their log-probs."""
    import torch

    ways = {
        "float32, sdpa": load(folder, torch.float32, "sdpa"),
        "float32, eager": load(folder, torch.float32, "eager"),
        "float64": float64(folder),
    }
    worst: dict[str, float] = {}
    for trajectory in trajectories:
        mask_T = trajectory.loss_mask()[1:]
        found = {name: forward(model, trajectory.ids())[mask_T] for name, model in ways.items()}
        found["vLLM, float32"] = trajectory.logprobs()[1:][mask_T].astype(np.float64)
        for one, other in combinations(found, 2):
            apart = float(np.abs(found[one] - found[other]).max())
            worst[f"{one} – {other}"] = max(worst.get(f"{one} – {other}", 0.0), apart)
    return worst


async def some(url: str, folder: Path, count: int) -> list[Trajectory[TokenSpan]]:
    """Rollouts, repaired live and in hindsight."""
    return await asyncio.gather(*(rolled(url, folder, mode, number) for mode in RepairMode for number in range(count)))


def main() -> None:
    """Roll out, compare, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="folders of `python -m benchmarks.models`")
    parser.add_argument("--rollouts", type=int, default=3, help="of each way to repair (default: 3)")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, help="keep the figures, with commit and machine")
    arguments = parser.parse_args()
    figures = {}
    for folder in arguments.models:
        with tempfile.TemporaryDirectory() as logs, serve(folder, Path(logs), record=False) as served:
            trajectories = asyncio.run(some(served.url, folder, arguments.rollouts))
        figures[folder.name] = distances(folder, trajectories)
    if arguments.save:
        save(arguments.save, figures, {"rollouts": arguments.rollouts})
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
