"""Two evaluations of the same problems: what changed from the first to the second, and whether it is more than chance.

Claims rest on repair off, so that is what is compared first; repair on and recovery are reported beside it. A
comparison asks first whether the two differ on these problems, or only by the luck of sampling; so the interval for
these problems leads. The one for problems at large is for claims about the models in general.

Limits: many comparisons at once make some p-values small by chance; none is corrected for that here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cleaner_rl.evaluate.paired import Difference, difference
from cleaner_rl.evaluate.results import Evaluation, Repair, ResultsError, SetResult


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second evaluation minus the first."""

    before: str
    after: str
    sets: Mapping[str, Difference]
    """pass@1 with repair off, by set."""
    repaired: Mapping[str, Difference]
    """The same with repair on."""
    recovery: Mapping[str, Difference]
    """Failures recovered from, by kind, and over `all`."""
    notes: tuple[str, ...] = ()
    """Differences between the two evaluations that make them hard to compare."""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return asdict(self)


def compare(before: Evaluation, after: Evaluation, *, seed: int = 0) -> Comparison:
    """Compare two evaluations, problem by problem, in the sets that both have.

    Raises:
        ResultsError: They have no set of problems in common.

    Examples:
        >>> from cleaner_rl.evaluate import compare, read_results
        >>> from cleaner_rl.view import DEMO
        >>> comparison = compare(read_results(DEMO / "grpo.json"), read_results(DEMO / "saar-roc.json"))
        >>> comparison.before, comparison.after
        ('grpo', 'saar + roc')
    """
    firsts, seconds = ({each.name: each for each in evaluation.sets} for evaluation in (before, after))
    common = [name for name in firsts if name in seconds]
    if not common:
        raise ResultsError(
            f"the two have no set of problems in common: one has {', '.join(firsts) or 'none'}, "
            f"the other {', '.join(seconds) or 'none'}; evaluate both on the same"
        )

    def by_set(repair: Repair) -> dict[str, Difference]:
        return {
            name: difference(firsts[name].runs[repair].problems, seconds[name].runs[repair].problems, seed=seed)
            for name in common
            if repair in firsts[name].runs and repair in seconds[name].runs
        }

    notes = [*_settings(before, after), *(note for name in common for note in _missing(firsts[name], seconds[name]))]
    notes += [note for each in (before, after) for note in _left_out(each, common)]
    return Comparison(
        before=before.model,
        after=after.model,
        sets=by_set(Repair.OFF),
        repaired=by_set(Repair.ON),
        recovery=_recovery(before, after, seed),
        notes=tuple(notes),
    )


def _recovery(before: Evaluation, after: Evaluation, seed: int) -> dict[str, Difference]:
    if before.recovery is None or after.recovery is None:
        return {}
    first, second = before.recovery, after.recovery
    pairs = {kind: (first.kinds[kind], second.kinds[kind]) for kind in first.kinds if kind in second.kinds}
    pairs["all"] = first.overall, second.overall
    return {kind: difference(a.repaired, b.repaired, seed=seed) for kind, (a, b) in pairs.items()}


def _settings(before: Evaluation, after: Evaluation) -> list[str]:
    names = [name for name in {**before.settings, **after.settings} if name not in ("model", "tasks")]
    return [
        f"{name} differs: {before.settings.get(name)} and {after.settings.get(name)}"
        for name in names
        if before.settings.get(name) != after.settings.get(name)
    ]


def _left_out(evaluation: Evaluation, common: Sequence[str]) -> list[str]:
    runs = {each.name: each.runs.get(Repair.OFF) for each in evaluation.sets if each.name in common}
    return [
        f"{name}: faults left out {sum(run.faults.values())} samples of {evaluation.model}; its pass@1 is "
        f"{100 * run.bounds[0]:.1f} % if they were all wrong, {100 * run.bounds[1]:.1f} % if all right"
        for name, run in runs.items()
        if run is not None and run.bounds is not None
    ]


def _missing(first: SetResult, second: SetResult) -> list[str]:
    if Repair.OFF not in first.runs or Repair.OFF not in second.runs:
        return [f"{first.name}: one of the two was not run with repair off"]
    left_out = first.runs[Repair.OFF].problems.keys() ^ second.runs[Repair.OFF].problems.keys()
    return [f"{first.name}: {len(left_out)} problems are in one of the two only, and are left out"] if left_out else []
