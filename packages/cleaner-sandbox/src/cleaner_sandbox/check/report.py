"""What a check found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleaner_sandbox.check.attack import AttackClass
from cleaner_sandbox.check.runner import AttackVerdict


@dataclass(slots=True)
class Report:
    """Holds the verdicts on a target, and what the same attacks do where isolation is off."""

    tier: str
    verdicts: Sequence[AttackVerdict]
    trials: Mapping[str, Sequence[AttackVerdict]] = field(default_factory=dict)
    """By name: `none` (all isolation off), `naive`, or a layer that was left out."""
    notes: Sequence[str] = ()

    @property
    def breached(self) -> bool:
        """Return whether any attack got through."""
        return any(not verdict.contained for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return one object with the figures, and a list of the verdicts behind them."""
        trials = {name: [each.attack.name for each in some if not each.contained] for name, some in self.trials.items()}
        return {
            "tier": self.tier,
            "attacks": len(self.verdicts),
            "escaped": sum(bool(verdict.escaped) for verdict in self.verdicts),
            "leaked": sum(bool(verdict.leaked) for verdict in self.verdicts),
            "wrong": sum(bool(verdict.wrong) for verdict in self.verdicts),
            "effective_without": len(trials["none"]) if "none" in trials else None,
            "effective": trials,
            "notes": list(self.notes),
            "details": [_detail(verdict) for verdict in self.verdicts],
        }

    def as_table(self) -> str:
        """Return a table of attack classes by result, then every attack that got through."""
        columns = [self.tier, *self.trials]
        lines = [f"{'':14}{'attacks':>9}" + "".join(f"{name:>14}" for name in columns)]
        for kind in AttackClass:
            row = [_through(self.verdicts, kind), *(_through(some, kind) for some in self.trials.values())]
            count = sum(verdict.attack.kind is kind for verdict in self.verdicts)
            lines.append(f"{kind:14}{count:>9}" + "".join(f"{cell:>14}" for cell in row))
        lines.append("(got through / tried)")
        for verdict in self.verdicts:
            for what in ("escaped", "leaked", "wrong"):
                lines += [f"{what:8} {verdict.attack.name}: {text}" for text in getattr(verdict, what)]
        return "\n".join([*lines, *self.notes])


def _through(verdicts: Sequence[AttackVerdict], kind: AttackClass) -> str:
    tried = [verdict for verdict in verdicts if verdict.attack.kind is kind]
    return f"{sum(not verdict.contained for verdict in tried)}/{len(tried)}"


def _detail(verdict: AttackVerdict) -> dict[str, Any]:
    return {
        "name": verdict.attack.name,
        "class": verdict.attack.kind,
        "status": verdict.status,
        "seconds": round(verdict.seconds, 3),
        "escaped": verdict.escaped,
        "leaked": verdict.leaked,
        "wrong": verdict.wrong,
    }
