"""A toy environment and a toy model that makes real mistakes and corrects them, trained in minutes on two CPU cores.

- `library`: twenty operations on lists as data, and the Python library made of them, whose names can change.
- `questions`: seeded tasks over these operations; training and held-out tasks never overlap.
- `mistakes`: the right program of a question, and ten kinds of mistakes in it.
- `regimes`: the environments as settings: `mistakes` (all ten kinds), `drift` (names have changed), `slips`.
- `demonstrations`: conversations in which every call ran in the sandbox; `sandboxes`: that sandbox.
- `model`: supervised training on the demonstrations (needs torch); `folder`: makes everything once and keeps it.
- `local`: an engine that serves the model in this process.
- `measure`: accuracy, failed first calls and corrections per try, by kind of mistake.

`python -m benchmarks.toy --help` makes and serves. `docs/results/archive.md` describes it.
"""
