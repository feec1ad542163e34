"""Tasks in a shell, a toy model that works on them, and what repair makes of its failed calls.

- `tasks`: ten kinds of tasks, with what solves each and what goes wrong.
- `lessons`: demonstrations with mistakes, and the model that learns from them.
- `python -m benchmarks.shell`: rollouts on vLLM with repair off and on, and replays.
- `python -m benchmarks.shell.local`: training in the lab's local backend.
"""
