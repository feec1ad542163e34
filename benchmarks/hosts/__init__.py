"""Two hosts on one machine: training across them on the real stack, and what happens when a part of one is lost.

- `two`: the hosts, each with a network of its own, a Ray node and a sandbox node.
- `run`: a run across both, and what it is judged by.
- `python -m benchmarks.hosts [FOLDER]`: a run in which an engine is killed and a host disappears.

Limits: the hosts share one disk, one kernel and its cores; only their networks and processes are apart.
"""
