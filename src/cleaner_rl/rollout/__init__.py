"""Rollouts: a model and its tools work on a task, turn by turn, and the result is a trajectory.

- `runner`: `RolloutRunner`, the one object that commands, trainers and examples use; begin here.
- `loop`: one rollout: sample, parse, execute, repair, observe · `grading`: grade, purify, re-score.
- `rescue`: a right rollout for a group that is all wrong · `prefilled`: a model of which some turns are given.
- `run_folder`: rollouts of many tasks into a folder · `journal`: the growing store of such a folder.
- `engine`: what serves the model, ids in and out · `chat_renderer`: the chat template as ids · `model`: both as one.
- `tool_env`: where calls run · `tool_plugins`: which environment a prompt's tool names, and tools of other packages.
- `sandbox_results`: what the statuses of a sandbox mean for a model: failures and faults are told apart here.
- `settings`: what a rollout may use, and how it is purified · `graders`: the graders that are installed
  · `rewards`: several of them with weights, and what a success is.
- `engines` (vLLM, SGLang, chat APIs over HTTP) and `balance` (several replicas as one) have their own interfaces.
- `demo`: the rollouts of `cleaner demo`, by a scripted model.

Limits: see the modules.
"""

from cleaner_rl.rollout.chat_renderer import ChatRenderer
from cleaner_rl.rollout.demo import PlainProcesses, demo_rollouts
from cleaner_rl.rollout.engine import (
    Completion,
    Connection,
    Engine,
    EngineFaultError,
    EngineKind,
    EngineRefusedError,
    Finish,
    Sampling,
)
from cleaner_rl.rollout.graders import standard_graders
from cleaner_rl.rollout.grading import calls_of, grade_and_purify
from cleaner_rl.rollout.journal import Journal
from cleaner_rl.rollout.loop import rollout
from cleaner_rl.rollout.model import Model, TokenModel
from cleaner_rl.rollout.prefilled import PrefilledModel, first_failure, with_turns
from cleaner_rl.rollout.rescue import RescueConfig, RescueTry
from cleaner_rl.rollout.rewards import ANSWER, ANSWER_ALONE, check_weights, load_function
from cleaner_rl.rollout.run_folder import RolloutSummary, collect
from cleaner_rl.rollout.runner import RolloutRunner, finished, open_runner
from cleaner_rl.rollout.sandbox_results import tool_result
from cleaner_rl.rollout.settings import Purifier, RolloutBudget
from cleaner_rl.rollout.templates import ChatError
from cleaner_rl.rollout.tool_env import Sandbox, SessionToolEnv, StatelessToolEnv, ToolEnv
from cleaner_rl.rollout.tool_plugins import TOOLS, tool_env_of

__all__ = [
    "ANSWER",
    "ANSWER_ALONE",
    "TOOLS",
    "ChatError",
    "ChatRenderer",
    "Completion",
    "Connection",
    "Engine",
    "EngineFaultError",
    "EngineKind",
    "EngineRefusedError",
    "Finish",
    "Journal",
    "Model",
    "PlainProcesses",
    "PrefilledModel",
    "Purifier",
    "RescueConfig",
    "RescueTry",
    "RolloutBudget",
    "RolloutRunner",
    "RolloutSummary",
    "Sampling",
    "Sandbox",
    "SessionToolEnv",
    "StatelessToolEnv",
    "TokenModel",
    "ToolEnv",
    "calls_of",
    "check_weights",
    "collect",
    "demo_rollouts",
    "finished",
    "first_failure",
    "grade_and_purify",
    "load_function",
    "open_runner",
    "rollout",
    "standard_graders",
    "tool_env_of",
    "tool_result",
    "with_turns",
]
