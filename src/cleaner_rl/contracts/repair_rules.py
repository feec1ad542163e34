"""What every set of repair rules must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import permutations
from typing import NamedTuple

from cleaner_rl.logs import Reading
from cleaner_rl.logs.warrant import FailedCall, RepairRules, Unwarranted
from cleaner_rl.tools import ToolCall

Arguments = Mapping[str, object]
NEEDED = (Unwarranted.FINDING, Unwarranted.OTHER_PURPOSE)
"""Reasons that no tool is without."""
UNKNOWN = ("", "Something went wrong (0x7f3a).", "é 𝒳 \x00 \t\r\n", "((((" * 200)
"""Words that no tool is known by."""
ODD: tuple[Arguments, ...] = (
    {},
    {"": ""},
    {"a": None, "b": [1, {"c": "d"}], "e": 2.5},
    {"code": 3, "command": ["x"], "query": None, "path": {"y": "z"}},
    {"text": "((((" * 200 + "é 𝒳 \x00"},
)


class Case(NamedTuple):
    """A failed call of a tool, what the tool said, and the call that worked after it."""

    tool: str
    failed: Arguments
    tool_output: str
    correction: Arguments


class RepairRulesContract:
    """Subclass it, name the subclass `Test…`, and give `make`, `repairs` and `kept`."""

    by_name = True
    """Whether the rules name their tools; false of ours, which are for a kind of call."""

    def make(self) -> RepairRules:
        """Your rules."""
        raise NotImplementedError

    def repairs(self) -> Sequence[Case]:
        """Failures that the correction may stand for, two or more, each about something else."""
        raise NotImplementedError

    def kept(self) -> Mapping[Unwarranted, Sequence[Case]]:
        """Failures that have to stay, by reason: at least a finding and another purpose. A bypass if your tool has
        safeguards, a change if a call of it can fail when it has changed something."""
        raise NotImplementedError

    def test_they_are_for_the_tools_that_they_name(self) -> None:
        """A set of rules without a name would never be asked."""
        patterns = self.make().tools
        for case in self._cases() if self.by_name else ():
            assert any(fnmatchcase(case.tool, each) for each in patterns), f"{case.tool!r} is none of {list(patterns)}"

    def test_mistakes_are_repaired(self) -> None:
        """Otherwise no failure of the tool ever is."""
        cases = self.repairs()
        assert len(cases) > 1, "`repairs` needs two cases or more"
        for case in cases:
            assert (reason := self._refusal(case)) is None, f"{case} is refused: {reason}"

    def test_what_must_stay_is_refused_for_its_reason(self) -> None:
        """People read the reason in the summary."""
        kept = self.kept()
        for reason in NEEDED:
            assert kept.get(reason), f"`kept` needs a case of {reason.value}"
        for reason, cases in kept.items():
            for case in cases:
                found = self._refusal(case)
                assert found is reason, f"{case} is {found.value if found else 'repaired'}, not {reason.value}"

    def test_unknown_words_are_no_mistake(self) -> None:
        """What nobody knows is left alone."""
        for case in self.repairs():
            for told in UNKNOWN:
                assert self._refusal(case._replace(tool_output=told)) is not None, (
                    f"{case} is repaired after {told[:40]!r}"
                )

    def test_another_call_is_no_correction(self) -> None:
        """A failure is not repaired by a call that is about something else."""
        for one, other in permutations(self.repairs(), 2):
            if one.tool == other.tool:
                mixed = one._replace(correction=other.correction)
                assert self._refusal(mixed) is not None, f"{mixed} is repaired"

    def test_any_call_gets_an_answer(self) -> None:
        """A log can hold any arguments, and one that raises costs the whole record."""
        for case in self._cases():
            for odd in ODD:
                for mixed in (case._replace(failed=odd), case._replace(correction=odd)):
                    self._refusal(mixed)

    def test_they_give_the_same_each_time(self) -> None:
        """A log that is purified again comes out the same."""
        for case in self._cases():
            answers = {self._refusal(case) for _ in range(3)}
            assert len(answers) == 1, f"{case} is judged in {len(answers)} ways"

    def _cases(self) -> list[Case]:
        return [*self.repairs(), *(case for cases in self.kept().values() for case in cases)]

    def _refusal(self, case: Case) -> Unwarranted | None:
        failed, correction = (_call(case.tool, each) for each in (case.failed, case.correction))
        try:
            found = self.make().refusal(FailedCall.of(failed, case.tool_output, correction), correction)
        except Exception as error:
            raise AssertionError(f"it raised {error!r} on {case}") from error
        assert found is None or isinstance(found, Unwarranted), f"it gave {found!r}, which is no reason"
        return found


def _call(tool: str, arguments: Arguments) -> ToolCall:
    """Return a call as a log is read."""
    return Reading().tools.call(tool, dict(arguments), 0, 0)
