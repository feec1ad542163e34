"""One value that travels the whole way: a `Trajectory`, made of spans, with every edit's raw material kept in it.

- `spans`: text, or tokens with the log-probs they were sampled with.
- `turns`: reasoning, action and observation; an edited turn holds its `Edit`, and with it the turns it stands for.
- `trajectory`: the turns of one rollout; ids, loss mask and log-probs are derived here, never kept beside it.
- `ledger`: what was really sampled (`raw`), and edits undone.
- `vocabulary`: token ids to text and character positions to token boundaries, in one linear pass.
- `reading`: sampled ids, or text, to a turn.
- `tallies`: failed calls, as the model left them and as they stand.
- `gaps`: what an edit's tokens lost by moving.
- `seeds`: every random choice from (run seed, task, rollout, turn, attempt).
- `store`: Parquet and JSONL, streaming both ways.

Limits: ids, mask and log-probs exist for token trajectories only; text trajectories become token ones by the explicit
step `encode`, which is for supervised training and never for reinforcement learning.
"""

from cleaner_rl.tools import derive_seed
from cleaner_rl.trajectory.encoding import encode
from cleaner_rl.trajectory.gaps import gap
from cleaner_rl.trajectory.ledger import Sampled, cut_before_repairs, raw, undo, without_rescoring
from cleaner_rl.trajectory.reading import read_text, read_tokens
from cleaner_rl.trajectory.seeds import Seeds
from cleaner_rl.trajectory.spans import Floats, Ids, Scores, TextSpan, TokenSpan, token_span
from cleaner_rl.trajectory.tallies import Tally, failures_mended, first_attempt_tally, first_attempts, residual_tally
from cleaner_rl.trajectory.trajectory import AnyTrajectory, Ending, Key, Owner, Placed, Trajectory
from cleaner_rl.trajectory.turns import Edit, Granularity, Mode, Turn
from cleaner_rl.trajectory.vocabulary import Vocabulary

__all__ = [
    "AnyTrajectory",
    "Edit",
    "Ending",
    "Floats",
    "Granularity",
    "Ids",
    "Key",
    "Mode",
    "Owner",
    "Placed",
    "Sampled",
    "Scores",
    "Seeds",
    "Tally",
    "TextSpan",
    "TokenSpan",
    "Trajectory",
    "Turn",
    "Vocabulary",
    "cut_before_repairs",
    "derive_seed",
    "encode",
    "failures_mended",
    "first_attempt_tally",
    "first_attempts",
    "gap",
    "raw",
    "read_text",
    "read_tokens",
    "residual_tally",
    "token_span",
    "undo",
    "without_rescoring",
]
