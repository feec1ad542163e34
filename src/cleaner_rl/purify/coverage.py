"""Decides whether a correction may stand for a turn of which some calls had worked.

A repair removes a whole turn, also the calls in it that worked. Two things can be lost with such a call: what it
printed, which the model may have used to write the correction, and what it left behind in a stateful tool, which later
calls may use. A repaired history must not lose either, or it teaches the model to know results from nowhere and to use
variables that no call has set.
"""

from __future__ import annotations

from collections import Counter

from cleaner_rl.tools import Status, ToolResult
from cleaner_rl.trajectory import S, Turn


def covers(correction: Turn[S], removed: Turn[S], *, rolled_back: bool) -> bool:
    """Return whether a verified correction does again what the calls that worked in a removed turn had done.

    A call that worked is covered in one of two ways:

    - The correction runs it again, a call of the same tool with the same code, and prints again what it had printed:
      the same code can print something else, if the correction set a variable before it. Two equal calls need two.
    - The correction prints everything again that the call had printed. This counts only if the call printed something
      and the correction ran without what the call had left behind (`rolled_back`). Then the correction has worked the
      output out by itself. In hindsight the correction ran after the call, so the same words may come out of a
      variable that the call had set: `print(a)` prints what `a = 1; print(a)` printed, and fails without it.

    A call that printed nothing was made for the state it sets, and no output can show whether that state is there
    again. So only running it again covers it.

    Args:
        correction: The turn that stays; all of its calls are ok.
        removed: A turn that the repair takes out of the history.
        rolled_back: Whether the correction ran from the state before `removed`, as SAAR runs it.

    Limits: equal code is taken for equal effects. In hindsight the correction ran on top of the first call's effects,
    so code that counts up (`x += 1`) shows another value than a replay without that call; `verify_by_replay` finds it.
    """
    again = Counter((call.name, call.code) for call in correction.calls)
    printed = {line for result in correction.results for line in _lines(result)}
    for call, result in zip(removed.calls, removed.results, strict=False):
        if result.status is not Status.OK:
            continue
        lines = _lines(result)
        if not printed.issuperset(lines):
            return False
        if again[call.name, call.code]:
            again[call.name, call.code] -= 1
        elif not rolled_back or not lines:
            return False
    return True


def _lines(result: ToolResult) -> list[str]:
    """Return the lines that a call printed and that are not blank."""
    return [line for line in (*result.output.splitlines(), *result.stderr.splitlines()) if line.strip()]
