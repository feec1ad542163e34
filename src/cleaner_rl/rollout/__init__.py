"""Rollouts: a model and its tools work on a task, turn by turn, and what comes of it is a trajectory.

- `policy`: who serves the model, ids in, ids out · `chat`: its template as ids · `model`: both as one.
- `toolbox`: where calls run.

Limits: see the modules.
"""

from cleaner_rl.rollout.chat import Chat, ChatError
from cleaner_rl.rollout.model import Model, TokenModel
from cleaner_rl.rollout.policy import Completion, EngineFaultError, Finish, Policy, Sampling
from cleaner_rl.rollout.toolbox import Hands, SessionToolbox, StatelessToolbox, Toolbox

__all__ = [
    "Chat",
    "ChatError",
    "Completion",
    "EngineFaultError",
    "Finish",
    "Hands",
    "Model",
    "Policy",
    "Sampling",
    "SessionToolbox",
    "StatelessToolbox",
    "TokenModel",
    "Toolbox",
]
