"""Train tool-using language models on clean trajectories.

The packages, lowest layer first: `tools` (calls and results), `trajectory` (spans, turns, edits, the store), `purify`
(SAAR and hindsight), `resample` (GRPO-RoC), `tasks` (problems and graders), `sandbox`, `logs`, `rollout`, `train`,
`evaluate`, `view` and `cli`. Import what you need from a package; this module stays empty so that `import cleaner_rl`
costs nothing.
"""

__version__ = "0.1.0"
