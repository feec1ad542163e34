"""What is known of a rollout beside its turns: how it was made, graded, checked and selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

FORMER_NAMES = {"roc": "verdict"}
"""Names that fields had in stores of earlier versions."""


@dataclass(frozen=True, slots=True)
class RolloutInfo:
    """Facts about one rollout. All of them are optional; mappings and lists hold JSON values only."""

    seconds: float | None = None
    """Wall time of the rollout."""
    lookahead: int | None = None
    """Tokens that the lookaheads sampled; characters in a text rollout."""
    stateful: bool | None = None
    """Whether the tool kept its state from call to call."""
    limits: Mapping[str, Any] | None = None
    """The limits that the tool ran under, as `cleaner_sandbox.Limits` takes them."""
    tool: Mapping[str, Any] | None = None
    """`kind` and `options` of the tool, and the task's `base` and `setup` if it has them."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """The messages that the prompt was rendered from."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """The schemas of the tools that the prompt names."""
    fault: str = ""
    """What broke: the engine or a tool if the stop reason is a fault, else the grader of a complete rollout."""
    checked: str | None = None
    """What the task's check printed after the answer; the grader reads it instead of the answer."""
    answer: str | None = None
    """The answer that the grader found."""
    grade: str = ""
    """Why the grader decided as it did."""
    terms: Mapping[str, float] | None = None
    """The terms of the reward by grader, before they are weighted; None if the answer's is the reward."""
    replay: str = ""
    """The verdict of a replay of the calls."""
    sampled: int | None = None
    """Number of tokens that the model sampled, including those that a repair removed."""
    overlong: float | None = None
    """The penalty on the reward of an overlong response."""
    verdict: Mapping[str, Any] | None = None
    """Whether resampling kept the rollout, and why: a `cleaner_rl.resample.RocVerdict`."""
    rescued: Mapping[str, Any] | None = None
    """For a rescue: the wrong rollout that it began with (`of`), and its first failed turn (`turn`)."""
    log: Mapping[str, Any] | None = None
    """What an imported log's record holds beside the turns."""
    session: str | None = None
    """The id of the session that an imported log names."""
    injected: str = ""
    """The kind of failure that the recovery benchmark began the rollout with."""
    asked: str = ""
    """The fingerprint of the task, for the cache of evaluations."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Any other facts to keep with the trajectory."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are known, for a store."""
        found = ((name, getattr(self, name)) for name in _DEFAULTS)
        known = {name: value for name, value in found if value is not None and value != _DEFAULTS[name]}
        return {**known, "other": dict(self.other)} if self.other else known

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. What fits no field goes to `other`, so that nothing is lost."""
        known: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for stored_name, value in stored.items():
            name = FORMER_NAMES.get(stored_name, stored_name)
            if name == "other" and isinstance(value, dict):
                other |= value
            elif isinstance(value, _TYPES.get(name, ())):
                known[name] = value
            elif value is not None or name not in _TYPES:
                other[name] = value
        return cls(**known, other=other)


_DEFAULTS = {each.name: each.default for each in fields(RolloutInfo) if each.name != "other"}
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("seconds", "overlong"), (int, float)),
    **dict.fromkeys(("lookahead", "sampled"), (int,)),
    **dict.fromkeys(("stateful",), (bool,)),
    **dict.fromkeys(("limits", "tool", "terms", "verdict", "rescued", "log"), (dict,)),
    **dict.fromkeys(("messages", "tools"), (list,)),
    **dict.fromkeys(("fault", "checked", "answer", "grade", "replay", "session", "injected", "asked"), (str,)),
}
"""What JSON has for each field."""
