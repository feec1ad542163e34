"""Trajectories: the prompt and turns of one rollout, made of spans, with everything that edits replaced.

- `spans`: text, or tokens with the log-probs they were sampled with.
- `turns`: reasoning, action and observation; an edited turn holds its `Edit`, and with it the turns that it replaced.
- `trajectory`: the turns of one rollout; ids, loss mask and log-probs are derived here, never kept beside it.
- `info`: how a rollout was made, graded, checked and selected.
- `edits`: the turns that were really sampled (`sampled_turns`), and undoing edits.
- `vocabulary`: token ids to text and character positions to token boundaries, in one linear pass.
- `reading`: sampled ids, or text, to a turn.
- `tallies`: counts of failed calls, before and after repairs.
- `gaps`: the log-prob that an edit's tokens lost by moving.
- `reviews`: what a person said of edits and verdicts, and the trajectory that follows.
- `seeds`: the seed of every random choice, from (run seed, task, rollout, turn, attempt).
- `store`: Parquet and JSONL, streaming both ways.

Limits: ids, mask and log-probs exist for token trajectories only; text trajectories become token ones by the explicit
step `encode`, which is for supervised training and never for reinforcement learning.
"""

from cleaner_rl.trajectory.edits import cut_before_repairs, sampled_turns, undo, without_hindsight, without_rescoring
from cleaner_rl.trajectory.encoding import encode
from cleaner_rl.trajectory.gaps import logprob_gap
from cleaner_rl.trajectory.info import RolloutInfo
from cleaner_rl.trajectory.reading import read_text, read_tokens
from cleaner_rl.trajectory.reviews import Said, edit_id, is_undone, read_reviews, result_id, reviewed
from cleaner_rl.trajectory.seeds import Seeds
from cleaner_rl.trajectory.spans import Floats, Ids, S, Scores, TextSpan, TokenSpan, token_span
from cleaner_rl.trajectory.tallies import Tally, before_repairs, failures_repaired, first_attempt_tally, residual_tally
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Key, Owner, Phase, Placed, StopReason, Trajectory
from cleaner_rl.trajectory.turns import Edit, RepairKind, RepairMode, Turn
from cleaner_rl.trajectory.vocabulary import Vocabulary

__all__ = [
    "AnyTrajectory",
    "Edit",
    "Floats",
    "Ids",
    "Key",
    "Owner",
    "Phase",
    "Placed",
    "RepairKind",
    "RepairMode",
    "RolloutInfo",
    "S",
    "Said",
    "Scores",
    "Seeds",
    "StopReason",
    "Tally",
    "TextSpan",
    "TokenSpan",
    "Trajectory",
    "Turn",
    "Vocabulary",
    "before_repairs",
    "cut_before_repairs",
    "edit_id",
    "encode",
    "failures_repaired",
    "first_attempt_tally",
    "is_undone",
    "logprob_gap",
    "read_reviews",
    "read_text",
    "read_tokens",
    "residual_tally",
    "result_id",
    "reviewed",
    "sampled_turns",
    "token_span",
    "undo",
    "without_hindsight",
    "without_rescoring",
]
