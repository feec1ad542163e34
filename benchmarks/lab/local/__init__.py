"""The lab's own backend: a recipe is trained in one process, with plain torch, in a second or two a step.

- `engine`: samples from a tiny Qwen3, and scores with it.
- `programs`: the sandbox, in which a program that was run already is not run again.
- `trainer`: one run: rollouts, rows, updates, evaluations, checkpoints.

Rollouts, repairs, rescues, groups, rows, metrics and the store are the library's, as on verl; sandbox and graders are
real. What verl, Ray and vLLM do is done here by torch on one core.
"""
