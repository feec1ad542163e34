"""A fire drill of training: a run in two stages on the real stack, in which one thing after the other breaks.

- `parts`: loaded by verl's rollout servers, so that requests can be made to fail.
- `runs`: a run that is started, waited for, killed, and judged by its folder.
- `nodes`: the sandbox's nodes, to be killed and started again at the same addresses.
- `python -m benchmarks.drill FOLDER`: the drill on a folder of `benchmarks.toy`, and what came of it.
"""
