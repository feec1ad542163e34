"""Holds everything that touches verl: its configuration, and the classes that run inside its processes.

- `overrides` turns a recipe into verl's configuration; `settings` reads what a recipe has in verl's words; `compat`
  lists every part of verl that this package relies on.
- `plan` is the file by which all processes of a run know the recipe and the sandbox's addresses.
- `plugin` is what verl loads in each process; `wiring` checks that our classes are in place there.
- `manager` hands out prompts and `sampler` collects groups, both in the trainer's process.
- `agent_loop`, `row_rollout` and `runner` run one rollout in a worker process, on verl's servers (`engine`).
- `packing` is what our processes exchange through verl's queue; `advantages` gives verl the advantages of `train.rows`.
- `excluded` tells the sampler of rollouts that give no row although nothing broke.
- `rescues` makes the rescue of a group wait for its rollouts, and tells the sampler what it sampled.
- `router` chooses the replica of a request.
- `cpu` lets verl run on machines without an accelerator.
- `lora` completes verl's LoRA: plain checkpoints, and weights that are sent unrounded.

Only `overrides`, `packing`, `plan`, `router`, `row_rollout`, `runner` and `settings` import without verl.
"""
