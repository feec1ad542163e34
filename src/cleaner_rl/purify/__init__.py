"""SAAR and hindsight: rewrite a failed turn with the model's own verified correction. Functions in, trajectories out.

- `policies`: every choice, with the paper's value as default.
- `similarity`: how alike the failed and the verified code are.
- `splice`: one rule for both ways: graft the action where the code is alike, else replace the reasoning too.
- `live`: SAAR as in the paper, a lookahead while the rollout runs.
- `hindsight`: our own, afterwards, onto the correction that the trajectory already holds.
- `rescore`: log-probs under the clean context, and how far they are from the lookahead's.
- `replay`: whether a trajectory's calls still give what it says they gave.
- `stale`: reasoning that talks of an error which no longer stands before it.

Limits: a correction is verified to run, not to be right; whether the answer is, the grader says. What a graft hides
(its tokens were sampled after an error that the trainer never sees) is measured as a gap, not removed.
"""

from cleaner_rl.purify.hindsight import LeftAlone, Purified, Reason, hindsight, settle
from cleaner_rl.purify.live import Budget, Draft, Repair, SampleRequest, Verdict, repair
from cleaner_rl.purify.policies import Phase, PurifyPolicy, Schedule, SplicePolicy, Unrepaired, Which
from cleaner_rl.purify.replay import Difference, Replay, ReplayFaultError, ReplayVerdict, prove, replay
from cleaner_rl.purify.rescore import gap_gate, refuse_wide_gaps, rescore
from cleaner_rl.purify.similarity import Measure, Similarity, similarity_measures
from cleaner_rl.purify.similarity import similarity as code_similarity
from cleaner_rl.purify.stale import stale_mentions
from cleaner_rl.trajectory import gap

__all__ = [
    "Budget",
    "Difference",
    "Draft",
    "LeftAlone",
    "Measure",
    "Phase",
    "Purified",
    "PurifyPolicy",
    "Reason",
    "Repair",
    "Replay",
    "ReplayFaultError",
    "ReplayVerdict",
    "SampleRequest",
    "Schedule",
    "Similarity",
    "SplicePolicy",
    "Unrepaired",
    "Verdict",
    "Which",
    "code_similarity",
    "gap",
    "gap_gate",
    "hindsight",
    "prove",
    "refuse_wide_gaps",
    "repair",
    "replay",
    "rescore",
    "settle",
    "similarity_measures",
    "stale_mentions",
]
