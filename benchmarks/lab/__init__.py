"""The lab compares training methods on a toy model with a real tool, by `cleaner train` on verl.

- `methods`: what is compared, as data · `environments`: where, and the models that all methods begin with.
- `order`: what runs when · `recipes`: a run as a recipe of `cleaner train` · `running`: runs and resumes it.
- `reading`: the figures of a run's folder by step · `served`: rollouts of a model that a run has saved.
- `recovery`: the same failed first calls for all models, and how often they recover.
- `larger_budget`: the same models with more turns than they were trained with.
- `results`: one JSON file per run · `summary`: curves, targets and ranges over seeds.
- `plots`, `tables`, `page`: the figures and tables of `docs/results/archive.md`.

`python -m benchmarks.lab --help`. Results: `docs/results/archive.md`.

Limits: a model of 0.5 million parameters in an environment of twenty operations. It shows the direction of a method's
effect and which of its parts matter, not the size of the effect on a large model.
"""
