"""`atif`: the Agent Trajectory Interchange Format of Harbor, versions 1.0 to 1.7: one JSON object per trajectory.

A step of the source `agent` is a turn: `message` and `reasoning_content` are its reasoning, `tool_calls` its action,
and the results in its own `observation` what came back. After an edit the steps are numbered anew where they were
numbered from 1; a grafted step loses its `metrics`, because nobody sampled it as a whole. `final_metrics` stays the
original run's.

ATIF has no field for how a call ended. What producers put into a result's `extra` (`is_error`, `exit_code`) is used,
else its text.

Limits: trajectories of subagents (`subagent_trajectories`, references) are kept and not looked into.
"""

from __future__ import annotations

from cleaner_rl.logs.chats import chat_of
from cleaner_rl.logs.formats.base import (
    Conversation,
    Reading,
    Record,
    first_of,
    inside,
    key_of,
    log_of,
    outcome_of,
)
from cleaner_rl.logs.messages import Dialect, Reader, Unreadable, all_written
from cleaner_rl.trajectory import RolloutInfo, TextSpan, Trajectory

DIALECT = Dialect(role="source", content="message", sampling_fields=("metrics", "timestamp", "llm_call_count"))


class AtifFormat:
    """Reads and writes objects with steps."""

    name = "atif"

    def detects(self, record: object) -> bool:
        """Return whether a record has ATIF's schema version, and steps."""
        if not isinstance(record, dict) or not str(record.get("schema_version")).startswith("ATIF-"):
            return False
        steps = record.get("steps")
        return isinstance(steps, list) and all(isinstance(step, dict) for step in steps)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """Return the trajectory of a record; each step of the agent is a turn."""
        if not self.detects(record):
            raise Unreadable("a record without the steps of an ATIF trajectory")
        found = Reader(reading.tools, DIALECT, reading.call_format).read((), record["steps"])
        ids = [step.get("step_id") for step in record["steps"]]
        extra = record.get("extra")
        told = {**record, **(extra if isinstance(extra, dict) else {})}
        reward, success = outcome_of(told)
        log = {
            "format": self.name,
            "record": {**record, "steps": None},
            "numbered": ids == list(range(1, len(ids) + 1)),
            **found.kept,
        }
        key = key_of(told, number, reading, found.prompt.text)
        run = first_of(record, ("session_id",), (str,))
        return Trajectory(found.prompt, found.turns, key, reward, success, info=RolloutInfo(log=log, session=run))

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """Return the object with the steps of the turns."""
        log = log_of(trajectory)
        steps = all_written(trajectory, DIALECT)
        if log["numbered"]:
            steps = [{**step, "step_id": number} for number, step in enumerate(steps, 1)]
        return {**log["record"], "steps": steps}

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the steps as messages, with the agent's tool definitions if there are any."""
        return chat_of(trajectory, DIALECT, inside(log_of(trajectory), "record", "agent").get("tool_definitions"))
