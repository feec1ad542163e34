"""The lab's own backend: a recipe is trained in one process, with plain torch, in seconds a step.

- `engine`: samples from a tiny Qwen3, and scores with it.
- `programs`: the sandbox, in which a program that was run already is not run again.
- `trainer`: one run: rollouts, rows, updates, evaluations, checkpoints; `beyond`: its settings that no recipe has.
- `worlds`: the environments, each in many worlds; `methods`: what is compared in them.
- `runs`: a method in a world, and what is kept of it; `queue`: does runs, and goes on after it was killed.
- `margins`: judges the fresh worlds by the plan.

Rollouts, repairs, rescues, groups, rows, metrics and the store are the library's, as on verl; sandbox and graders are
real. What verl, Ray and vLLM do is done here by torch on one core.
"""
