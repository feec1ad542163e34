"""Runs verl on machines without an accelerator.

- `platform` registers the CPU as a device of verl's; `patches` replaces what verl assumes of an accelerator.
- `vllm_worker` is loaded by vLLM, by its import path, in the engine's own process.

It is loaded only in an environment that has verl, and only with `VERL_PLATFORM=cpu`. The configuration that belongs to
it (sdpa attention, fp32, no torch.compile, no sleeping rollout server) is written by `cleaner_rl.train.verl.overrides`.
"""
