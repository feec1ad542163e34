"""A tiny model that is taught, in minutes, to make and to mend real mistakes; and the small world that it works in.

- `library`: twenty operations on lists as data, and the Python library made of them, whose names can change.
- `questions`: seeded tasks over these operations, training and held-out ones apart by construction.
- `mistakes`: the right program of a question, and what ten kinds of mistakes make of it.
- `regimes`: the worlds as settings: `mistakes` (all ten kinds), `drift` (names have changed), `slips`.
- `teacher`: demonstrations, each call of which ran in the sandbox. `workshop`: that sandbox.
- `pupil`: supervised training on the demonstrations (needs torch). `folder`: all of it, made once and kept.
- `measure`: what a model does: accuracy, first calls that fail, mends a try, by kind.

`python -m benchmarks.taught --help` makes and measures. `docs/taught.md` has the figures.
"""
