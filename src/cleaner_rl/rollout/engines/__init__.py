"""Inference engines: over HTTP, and the model of this process.

- `http`: one engine's address: retries, patience, and errors that are faults.
- `vllm`, `sglang`: engines, ids in and ids out.
- `in_process`: a model of transformers that your own training loop holds.
- `connect`: from what a person names to a model; several replicas as one are `rollout.balance`'s.
- `endpoint`: any OpenAI-compatible chat API, as text, for evaluation only.

Limits: SGLang does not run on the machines that test this; its client follows its documented contract and is tested
against a stand-in. Addresses are plain HTTP; put a proxy in front where the network isn't yours.
"""

from cleaner_rl.rollout.engines.connect import connect, tokenizer_of
from cleaner_rl.rollout.engines.http import Address
from cleaner_rl.rollout.engines.in_process import TransformersEngine
from cleaner_rl.rollout.engines.sglang import SglangEngine
from cleaner_rl.rollout.engines.vllm import VllmEngine

__all__ = [
    "Address",
    "SglangEngine",
    "TransformersEngine",
    "VllmEngine",
    "connect",
    "tokenizer_of",
]
