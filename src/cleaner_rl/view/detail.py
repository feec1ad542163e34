"""A trajectory as JSON for the page that shows it: turns, edits with what they replaced, results.

Texts are given as they are, up to a length; the page makes them visible and never markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from cleaner_rl.tools import CallKind, ToolCall, ToolResult, call_code
from cleaner_rl.trajectory import AnyTrajectory, Edit, RepairMode, RolloutInfo, TokenSpan, Turn, logprob_gap
from cleaner_rl.view.recovery import recovery_view, with_loss
from cleaner_rl.view.titles import title_of

LONGEST = 2_000_000
"""Characters of one text that are given to the page."""
NOT_FACTS = ("messages", "tools", "log")
"""What `info` holds for replays, other models and writing a log back, and the page shows already or has no use for."""
SAME = "same"
"""The verdict of a replay that gave what was recorded."""
Json = dict[str, Any]


def detail(trajectory: AnyTrajectory) -> Json:
    """All but its tokens."""
    key, info = trajectory.key, trajectory.info
    turns: tuple[Turn[Any], ...] = trajectory.turns
    moved = {(placed.turn, placed.owner.value) for placed in trajectory.placed() if placed.moved}
    left_alone = _left_alone(info)
    recovery = recovery_view(trajectory)
    return {
        "key": {"run": key.run, "phase": key.phase, "step": key.step, "task": key.task, "rollout": key.rollout},
        "reward": number(trajectory.reward),
        "success": trajectory.success,
        "stop_reason": trajectory.stop_reason,
        "title": title_of(trajectory.prompt.text, {"messages": info.messages}),
        "source": _source(info),
        "info": plain({name: value for name, value in info.to_json().items() if name not in NOT_FACTS}),
        "length": len(trajectory),
        "unit": "tokens" if isinstance(trajectory.prompt, TokenSpan) else "characters",
        "prompt": _text(trajectory.prompt),
        "turns": [
            {
                **_turn(turn, info),
                "left_alone": left_alone.get(index),
                "moved": [owner for place, owner in sorted(moved) if place == index],
            }
            for index, turn in enumerate(turns)
        ],
        "in_loss": _in_loss(trajectory),
        "recovery": None
        if recovery is None
        else {
            "turns": [_turn(turn, info) for turn in recovery.turns],
            "length": len(recovery),
            "in_loss": _in_loss(recovery, recovery=True),
        },
    }


def _in_loss(trajectory: AnyTrajectory, *, recovery: bool = False) -> int:
    """How much of it is in the loss, in the unit of its length."""
    return sum(len(placed.span) for placed, learnt in with_loss(trajectory, recovery=recovery) if learnt)


def number(value: float | None) -> float | None:
    """A number that JSON has; else null."""
    return value if value is not None and isfinite(value) else None


def plain(value: Any) -> Any:
    """JSON values, with null for numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return number(value) if isinstance(value, float) else value


def _source(info: RolloutInfo) -> Json | None:
    """Where a log's record came from; None for a rollout."""
    if info.log is None:
        return None
    source = info.log.get("source")
    found = source if isinstance(source, Mapping) else {}
    return {"format": info.log.get("format"), **{name: plain(found.get(name)) for name in ("file", "line", "id")}}


def _left_alone(info: RolloutInfo) -> dict[int, str]:
    """Why failed turns of a log were not repaired, by turn."""
    found = (info.log or {}).get("left_alone")
    entries = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []
    return {each["turn"]: str(each.get("why")) for each in entries if isinstance(each.get("turn"), int)}


def _verified(edit: Edit[Any], info: RolloutInfo) -> str | None:
    """What showed that the correction works where it is now; None if nothing did."""
    if edit.mode is RepairMode.SAAR:
        return "The correction ran here before it was accepted."
    if info.replay == SAME:
        return "A replay of the repaired trajectory gave the same results."
    if info.log is None and info.stateful is False:
        return "The correction ran in the rollout, and no call depends on an earlier one."
    return None


def _turn(turn: Turn[Any], info: RolloutInfo) -> Json:
    edit = turn.edit
    return {
        "reasoning": _text(turn.reasoning),
        "action": _text(turn.action),
        "observation": _text(turn.observation),
        "calls": [_call(call) for call in turn.calls],
        "results": [_result(result) for result in turn.results],
        "attempt": turn.attempt,
        "failed": turn.failed,
        "length": len(turn),
        "edit": None
        if edit is None
        else {
            "mode": edit.mode,
            "kind": edit.kind,
            "similarity": number(edit.similarity),
            "measure": edit.measure,
            "refusal": edit.refusal,
            "stale": list(edit.stale),
            "verified": _verified(edit, info) if edit.commits else None,
            "logprob_gap": number(logprob_gap(turn)),
            "original": [_turn(each, info) for each in edit.original],
        },
    }


def _text(span: Any) -> Json | None:
    if span is None:
        return None
    return {"text": span.text[:LONGEST], "cut": max(0, len(span.text) - LONGEST)}


def _call(call: ToolCall) -> Json:
    # A tool that runs nothing has its arguments for code, as JSON: they are shown once.
    code = "" if call.arguments and call.code == call_code(CallKind.OTHER, call.arguments) else call.code
    others = {name: value for name, value in call.arguments.items() if not _is_code(call, name, value)}
    return {
        "name": call.name,
        "kind": call.kind,
        "code": code[:LONGEST],
        "arguments": plain(others),
        "problem": call.problem,
    }


def _is_code(call: ToolCall, name: str, value: object) -> bool:
    """Whether an argument says nothing but what the code does."""
    return value == call.code or (call.kind is not CallKind.OTHER and call_code(call.kind, {name: value}) == call.code)


def _result(result: ToolResult) -> Json:
    error = result.exception
    return {
        "status": result.status,
        "blame": result.status.blame,
        "output": result.output[:LONGEST],
        "stderr": result.stderr[:LONGEST],
        "exception": error
        and {"type": error.type, "message": error.message, "line": error.line, "traceback": error.traceback},
        "explanation": result.explanation,
        "output_length": result.output_length,
        "seconds": number(result.seconds),
    }
