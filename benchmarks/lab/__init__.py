"""The lab: does training on clean trajectories do what it is for? A tiny model, a real tool, `cleaner train` on verl.

- `arms`: what is compared, as data · `worlds`: where, the models that all arms begin with · `order`: what runs when.
- `recipes`: a run as a recipe of `cleaner train` · `running`: runs it, and goes on with what was broken off.
- `reading`: what a run left, as figures by step · `served`: rollouts of a model that a run has saved.
- `recovery`: failed first calls, the same for all, and who mends them · `room`: what models can do with more turns.
- `results`: one JSON file a run · `summary`: runs to curves, targets and intervals.
- `plots`, `tables`, `page`: for people.

`python -m benchmarks.lab --help`. `docs/lab.md` has what came of it.

Limits: a model of 0.5 million parameters in a world of twenty operations. It shows which way a method pushes and what
does the work in it, not how far it pushes a large model.
"""
