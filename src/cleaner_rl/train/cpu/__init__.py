"""verl on machines without an accelerator: a platform (`platform.py`), bridges (`bridges.py`), vLLM's worker.

Loaded only in an environment that has verl, and only with `VERL_PLATFORM=cpu`. The configuration that goes with it
(sdpa attention, fp32, no torch.compile, no sleeping rollout server) is the recipe's part: `cleaner_rl.train.overrides`.
"""
