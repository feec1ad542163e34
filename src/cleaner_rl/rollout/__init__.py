"""Rollouts: a model and its tools work on a task, turn by turn, and what comes of it is a trajectory.

- `policy`: who serves the model, ids in, ids out · `chat`: its template as ids · `model`: both as one.
- `toolbox`: where calls run · `toolboxes`: which of them a prompt's tool names · `guarded`: tools that raise.
- `loop`: sample, parse, execute, repair, observe. Begin reading there.
- `settings`: what a rollout may use, and how it is purified · `finish`: grade, settle, re-score.

Limits: see the modules.
"""

from cleaner_rl.rollout.chat import Chat, ChatError
from cleaner_rl.rollout.finish import answer, finish
from cleaner_rl.rollout.loop import rollout
from cleaner_rl.rollout.model import Model, RescoringRefusedError, TokenModel
from cleaner_rl.rollout.policy import Completion, EngineFaultError, EngineRefusedError, Finish, Policy, Sampling
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.toolbox import Hands, SessionToolbox, StatelessToolbox, Toolbox
from cleaner_rl.rollout.toolboxes import TOOLS, toolbox_of

__all__ = [
    "TOOLS",
    "Chat",
    "ChatError",
    "Completion",
    "EngineFaultError",
    "EngineRefusedError",
    "Finish",
    "Hands",
    "Model",
    "Policy",
    "Purifier",
    "RescoringRefusedError",
    "RolloutBudget",
    "Sampling",
    "SessionToolbox",
    "StatelessToolbox",
    "TokenModel",
    "Toolbox",
    "answer",
    "finish",
    "rollout",
    "toolbox_of",
]
