"""Turns any record of a log into a trajectory, and back. What can't be read is passed through unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner_rl.logs.chats import chat_of_rollout
from cleaner_rl.logs.formats import Reading, log_format
from cleaner_rl.logs.formats.base import Conversation, id_in, log_of
from cleaner_rl.logs.messages import Unreadable
from cleaner_rl.trajectory import Key, RolloutInfo, TextSpan, Trajectory

OPAQUE = "opaque"
NO_UNICODE = "text that is not Unicode (a lone surrogate)"
TOO_LARGE = "a number that is too large to be stored"
NO_OBJECT = "JSON that is not an object"
STORED_BITS = 63


def read_record(record: Any, form: str, number: int, reading: Reading) -> Trajectory[TextSpan]:
    """Return the trajectory of a record, the `number`-th of its file; one without turns if it can't be read."""
    reason = NO_OBJECT
    if isinstance(record, dict):
        try:
            trajectory = log_format(form).read(record, number, reading)
            _must_be_storable(trajectory)
            return trajectory
        except UnicodeEncodeError:
            reason = NO_UNICODE
        except OverflowError:
            reason = TOO_LARGE
        except Unreadable as error:
            reason = str(error)
    log = {"format": form, OPAQUE: reason, "record": record}
    return Trajectory(TextSpan(""), (), Key(reading.run, 0, "", number), info=RolloutInfo(log=log))


def with_source(trajectory: Trajectory[TextSpan], file: str, line: int | None) -> Trajectory[TextSpan]:
    """Return a trajectory of a log that knows where its record came from: its file, its line or row, and its own id."""
    log = log_of(trajectory)
    own = log.get("id") or (id_in(log["record"]) if isinstance(log["record"], dict) else None)
    source = {"file": file, "line": line, "id": own}
    return replace(trajectory, info=replace(trajectory.info, log={**log, "source": source}))


def write_record(trajectory: Trajectory[TextSpan]) -> Any:
    """Return the record of a trajectory as it is now; without edits, the record that it was read from."""
    log = log_of(trajectory)
    return log["record"] if OPAQUE in log else log_format(log["format"]).write(trajectory)


def chat_of_record(trajectory: Trajectory[Any]) -> Conversation | None:
    """Return the trajectory as messages; None if its record can't be read as turns.

    Raises `Unreadable` if messages can't hold all of it.
    """
    log = log_of(trajectory)
    if not log:
        return chat_of_rollout(trajectory)
    return None if OPAQUE in log else log_format(log["format"]).chat(trajectory)


def _must_be_storable(trajectory: Trajectory[TextSpan]) -> None:
    """Raise for one trajectory what a store would raise for all."""
    key = trajectory.key
    # A program comes out of JSON, which can spell in plain letters what no text may hold.
    calls = (text for turn in trajectory.turns for call in turn.calls for text in (call.name, call.code))
    "".join((trajectory.text, key.task, *calls)).encode()
    if max(key.step.bit_length(), key.rollout.bit_length()) > STORED_BITS:
        raise OverflowError
