"""The rules that come with the package, one for each kind of call. Each is a table of words and a few functions."""

from __future__ import annotations

from collections.abc import Collection

from cleaner_rl.logs.warrant.context import Leftovers
from cleaner_rl.logs.warrant.edits import edit_refusal
from cleaner_rl.logs.warrant.other import INVALID_ARGUMENTS, other_refusal
from cleaner_rl.logs.warrant.python import python_refusal
from cleaner_rl.logs.warrant.reasons import Unwarranted
from cleaner_rl.logs.warrant.rules import FailedCall
from cleaner_rl.logs.warrant.shell import shell_refusal
from cleaner_rl.logs.warrant.sql import sql_refusal
from cleaner_rl.tools import ToolCall


class KindRules:
    """Rules for every tool of a kind, whatever its name."""

    tools: Collection[str] = ()

    def refusal(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Return why the correction may not stand for the failed call; None if it may."""
        if failed.call.kind is not correction.kind:
            return Unwarranted.OTHER_PURPOSE
        return self.of_kind(failed, correction)

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two calls of this kind."""
        raise NotImplementedError


class PythonRules(KindRules):
    """Python programs."""

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two programs."""
        meant = failed.as_offered()
        return python_refusal(
            meant.call.code,
            correction.code,
            meant.tool_output,
            failed.context.reads_later,
            lasting=failed.context.leftovers is Leftovers.UNCHECKED,
            absent=failed.renamed.values(),
            was_given=failed.context.was_given,
        )


class ShellRules(KindRules):
    """Commands of a shell."""

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two commands."""
        was_given = failed.context.was_given
        return shell_refusal(failed.call.code, correction.code, failed.tool_output, failed.renamed, was_given)


class OtherRules(KindRules):
    """Calls of any other tool."""

    def refusal(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Return why the correction may not stand for the failed call; None if it may."""
        if INVALID_ARGUMENTS.search(failed.own_words):
            # The arguments were wrong, and so may be the kind that they tell.
            meant = failed.as_offered()
            return _of_arguments(meant, correction, meant.own_words)
        return super().refusal(failed, correction)

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two calls whose arguments the tool took."""
        meant = failed.as_offered()
        return _of_arguments(meant, correction, meant.tool_output)


class SqlRules(OtherRules):
    """SQL statements."""

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two statements."""
        meant = failed.as_offered()
        return sql_refusal(meant.call.code, correction.code, meant.tool_output)


class EditRules(OtherRules):
    """File edits."""

    def of_kind(self, failed: FailedCall, correction: ToolCall) -> Unwarranted | None:
        """Judge two edits."""
        meant = failed.as_offered()
        return edit_refusal(meant.call.arguments, correction.arguments, meant.own_words, failed.context.task)


def _of_arguments(failed: FailedCall, correction: ToolCall, told: str) -> Unwarranted | None:
    was_given = failed.context.was_given
    return other_refusal(failed.call.name, failed.call.arguments, correction.arguments, told, was_given)
