"""Repairs failed turns with the model's own verified corrections, by SAAR or in hindsight. It runs nothing itself.

- `saar`: SAAR (Similarity-Aware Adaptive Rollback) as in the paper, a lookahead while the rollout runs.
- `hindsight`: our own method, after the rollout, with the correction that the trajectory already holds.
- `splice`: makes the turn that replaces a failure, by one rule for both methods: a graft of the action if the code is
  similar, else a replacement of reasoning and action.
- `coverage`: what a correction must do again, so that nothing is lost with a removed turn.
- `similarity`: how similar the failed and the verified code are.
- `rescore`: log-probs in the repaired context, and how far they are from those of the lookahead.
- `replay`: whether a trajectory's calls give the recorded results again.
- `stale`: reasoning that mentions an error that the repair removed.
- `config`: every setting, with the paper's value as default.

Limits: a correction is verified to run, not to be right; the grader says whether the answer is right. The tokens of a
graft were sampled after an error that the trainer never sees; the effect is measured as a gap and not removed.
"""

from cleaner_rl.purify.config import OnUnrepaired, PurifyConfig, PurifyScope, RepairConfig, Schedule, Views
from cleaner_rl.purify.hindsight import LeftAlone, Reason, Refusal, hindsight, left_alone, purify
from cleaner_rl.purify.replay import (
    ExecuteCall,
    ReplayDifference,
    ReplayFaultError,
    ReplayVerdict,
    replay,
    verify_by_replay,
)
from cleaner_rl.purify.rescore import Score, gap_gate, refuse_wide_gaps, rescore
from cleaner_rl.purify.saar import Draft, Gate, RepairBudget, RepairOutcome, RepairResult, SampleRequest, repair
from cleaner_rl.purify.similarity import SIMILARITY_MEASURES
from cleaner_rl.purify.similarity import similarity as code_similarity

__all__ = [
    "SIMILARITY_MEASURES",
    "Draft",
    "ExecuteCall",
    "Gate",
    "LeftAlone",
    "OnUnrepaired",
    "PurifyConfig",
    "PurifyScope",
    "Reason",
    "Refusal",
    "RepairBudget",
    "RepairConfig",
    "RepairOutcome",
    "RepairResult",
    "ReplayDifference",
    "ReplayFaultError",
    "ReplayVerdict",
    "SampleRequest",
    "Schedule",
    "Score",
    "Views",
    "code_similarity",
    "gap_gate",
    "hindsight",
    "left_alone",
    "purify",
    "refuse_wide_gaps",
    "repair",
    "replay",
    "rescore",
    "verify_by_replay",
]
