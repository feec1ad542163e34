"""Repair one trajectory in hindsight: `python examples/purify_one.py` prints it before and after, and undoes it."""

from dataclasses import replace

from cleaner_rl.purify import RepairConfig, hindsight
from cleaner_rl.tools import ExceptionInfo, Status, ToolResult, ToolSet, call_format, feedback, python_tool
from cleaner_rl.trajectory import TextSpan, Trajectory, read_text, undo


def turn(text, result=None):
    """Read the calls in a model's text, and add what the tool returned."""
    made = read_text(text, call_format("fenced"), ToolSet(python_tool()))
    return made if result is None else replace(made, results=(result,), observation=TextSpan(feedback(result)))


worked = ToolResult(Status.OK, "42.0\n")
failed = ToolResult(Status.ERROR, exception=ExceptionInfo("NameError", "name 'sqrt' is not defined", line=1))
trajectory = Trajectory(
    TextSpan("What is the square root of 1764?"),
    (
        turn("I compute it.\n```python\nprint(sqrt(1764))\n```", failed),
        turn("I forgot the import.\n```python\nfrom math import sqrt\nprint(sqrt(1764))\n```", worked),
        turn("It is 42."),
    ),
)
purified = hindsight(trajectory, RepairConfig(threshold=0.5)).trajectory
(index, edit), *_ = purified.edits
print(f"--- before: {len(trajectory.turns)} turns\n{trajectory.text}\n")
print(f"--- after: {len(purified.turns)} turns, {edit.kind}, similarity {edit.similarity:.2f}\n{purified.text}\n")
print(f"--- undone: {undo(purified, index) == trajectory}")
