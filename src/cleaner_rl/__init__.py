"""Train tool-using language models on clean trajectories.

The rooms, from the ground up: `tools` (calls and results), `trajectory` (spans, turns, edits, the store), `purify`
(SAAR and hindsight), `resample` (GRPO-RoC), `tasks` (problems and graders), `cli`. Import what you need from a room;
this module stays empty so that `import cleaner_rl` costs nothing.
"""

__version__ = "0.1.0"
