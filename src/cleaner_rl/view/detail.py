"""A trajectory as JSON for the page that shows it: turns, edits with what they replaced, results.

Texts are given as they are, up to a length; the page makes them visible and never markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from cleaner_rl.tools import ToolCall, ToolResult
from cleaner_rl.trajectory import AnyTrajectory, TokenSpan, Turn, logprob_gap

LONGEST = 2_000_000
"""Characters of one text that are given to the page."""
IN_THE_PROMPT = ("messages", "tools")
"""What `info` holds for replays and other models, and the prompt shows already."""
Json = dict[str, Any]


def detail(trajectory: AnyTrajectory) -> Json:
    """All but its tokens."""
    key = trajectory.key
    turns: tuple[Turn[Any], ...] = trajectory.turns
    moved = {(placed.turn, placed.owner.value) for placed in trajectory.placed() if placed.moved}
    return {
        "key": {"run": key.run, "phase": key.phase, "step": key.step, "task": key.task, "rollout": key.rollout},
        "reward": number(trajectory.reward),
        "success": trajectory.success,
        "stop_reason": trajectory.stop_reason,
        "info": plain({name: value for name, value in trajectory.info.to_json().items() if name not in IN_THE_PROMPT}),
        "length": len(trajectory),
        "unit": "tokens" if isinstance(trajectory.prompt, TokenSpan) else "characters",
        "prompt": _text(trajectory.prompt),
        "turns": [
            {**_turn(turn), "moved": [owner for place, owner in sorted(moved) if place == index]}
            for index, turn in enumerate(turns)
        ],
    }


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


def _turn(turn: Turn[Any]) -> Json:
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
            "logprob_gap": number(logprob_gap(turn)),
            "original": [_turn(each) for each in edit.original],
        },
    }


def _text(span: Any) -> Json | None:
    if span is None:
        return None
    return {"text": span.text[:LONGEST], "cut": max(0, len(span.text) - LONGEST)}


def _call(call: ToolCall) -> Json:
    others = {name: value for name, value in call.arguments.items() if value != call.code}
    return {
        "name": call.name,
        "code": call.code[:LONGEST],
        "arguments": plain(others),
        "problem": call.problem,
        "is_program": len(others) < len(call.arguments),
    }


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
