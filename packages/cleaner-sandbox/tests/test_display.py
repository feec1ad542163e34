"""Figures and rich values: what a program shows comes back, within bounds, and decides nothing."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cleaner_sandbox import BARE, DATA, Environment, NodeConfig, RunOutcome
from cleaner_sandbox.inside import wire
from cleaner_sandbox.node.verdict import displays_of
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.test_sessions import Cells

RICH = """
class Rich:
    def __repr__(self): return "a rich value"
    def _repr_html_(self): return "<b>rich</b>"
    def _repr_json_(self): return {"rich": [1, None]}
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"not really a PNG"
"""
RICH_FORMS = {
    "text/plain": "a rich value",
    "text/html": "<b>rich</b>",
    "application/json": '{"rich": [1, null]}',
    "image/svg+xml": "<svg/>",
    "image/png": base64.b64encode(b"not really a PNG").decode(),
}


@pytest.fixture(scope="module")
def plots() -> Iterator[Driver]:
    driver = Driver(NodeConfig(slots=1, environments=(BARE, DATA)))
    yield driver
    driver.close()


def sizes(outcome: RunOutcome) -> list[tuple[int, int]]:
    """Width and height of the figures that were shown, which have to be PNGs."""
    images = [Image.open(io.BytesIO(base64.b64decode(each["image/png"]))) for each in outcome.displays]
    assert {each.format for each in images} <= {"PNG"}
    return [each.size for each in images]


def test_the_last_expression_is_shown_in_all_its_forms(box: Driver) -> None:
    outcome = box.outcome(RICH + "Rich()", echo_last_expression=True)
    assert (outcome.result.output, list(outcome.displays)) == ("a rich value\n", [RICH_FORMS])
    assert outcome.displays_left_out == {}
    assert box.outcome(RICH + "Rich()").displays == []


def test_display_shows_values_and_prints_their_texts(box: Driver) -> None:
    outcome = box.outcome(RICH + "print(display(Rich(), 5, 'text'))\ndisplay({'text/latex': '$x$'}, raw=True)")
    assert outcome.result.output == "a rich value\n5\n'text'\nNone\n"
    assert list(outcome.displays) == [RICH_FORMS, {"text/latex": "$x$"}]


def test_a_bundle_may_have_metadata_and_types_that_nobody_reads(box: Driver) -> None:
    code = """
class Bundle:
    def _repr_mimebundle_(self, include, exclude): return {"text/markdown": "*", "application/x-own": {}}, {"width": 1}
    def _repr_html_(self): return "<i>", {"isolated": True}
    def __repr__(self): return "bundle"
display(Bundle())
"""
    outcome = box.outcome(code)
    assert list(outcome.displays) == [{"text/plain": "bundle", "text/html": "<i>", "text/markdown": "*"}]
    assert outcome.displays_left_out == {"other": 1}


def test_a_form_that_can_not_be_made_is_counted(box: Driver) -> None:
    code = """
class Half:
    def _repr_html_(self): return 1 / 0
    def _repr_json_(self): return {1, 2}
    def _repr_svg_(self): return None
    def __repr__(self): return "half"
Half()
"""
    outcome = box.outcome(code, echo_last_expression=True)
    assert (outcome.result.status, outcome.result.output) == (RunStatus.OK, "half\n")
    assert list(outcome.displays) == [{"text/plain": "half"}]
    assert outcome.displays_left_out == {"text/html": 1, "application/json": 1}


def test_attributes_that_only_an_instance_has_are_no_forms(box: Driver) -> None:
    code = "from unittest.mock import MagicMock\nMagicMock(name='any')"
    assert box.outcome(code, echo_last_expression=True).displays == []


def test_what_does_not_fit_is_left_out_and_counted(box: Driver) -> None:
    code = "for size in (60, 60, 30): display({'text/plain': '.', 'text/html': '<' * size}, raw=True)"
    outcome = box.outcome(code, output_bytes=100)
    assert outcome.result.status is RunStatus.OK
    assert [len(each.get("text/html", "")) for each in outcome.displays] == [60, 0, 30]
    assert outcome.displays_left_out == {"text/html": 1}


def test_there_are_only_so_many_displays(box: Driver) -> None:
    outcome = box.outcome(f"for n in range({wire.MOST_DISPLAYS + 7}): display({{'text/html': str(n)}}, raw=True)")
    assert [each["text/html"] for each in outcome.displays] == [str(number) for number in range(wire.MOST_DISPLAYS)]
    assert outcome.displays_left_out == {"text/html": 7}


def test_displays_do_not_change_a_failure(box: Driver) -> None:
    outcome = box.outcome(RICH + "display(Rich())\n1 / 0")
    assert outcome.result.exception is not None
    assert (outcome.result.exception.type, list(outcome.displays)) == ("ZeroDivisionError", [RICH_FORMS])
    assert box.outcome(RICH + "display(Rich())\nimport os; os._exit(0)").displays == [RICH_FORMS]


def test_who_wants_no_displays_gets_the_same_output_without(box: Driver) -> None:
    outcome = box.outcome(RICH + "display(Rich())\nRich()", echo_last_expression=True, keep_displays=False)
    assert (outcome.result.output, outcome.displays) == ("a rich value\na rich value\n", [])


def test_tracebacks_show_nothing_of_the_sandbox(box: Driver) -> None:
    code = "class Broken:\n    def __repr__(self): return 1 / 0\n    def _repr_html_(self): return ''\n"
    for last, echo in (("Broken()", True), ("display(Broken())", False)):
        exception = box.run(code + last, echo_last_expression=echo).exception
        assert exception is not None
        frames = [line.split(",")[:2] for line in exception.traceback.splitlines() if line.startswith("  File")]
        assert frames == [['  File "main.py"', " line 4"], ['  File "main.py"', " line 2"]]


def test_processes_of_a_program_add_to_its_displays(t2: Driver) -> None:
    code = """
import os
for number in range(3):
    if not (pid := os.fork()):
        display({"text/html": str(number)}, raw=True)
        os._exit(0)
    os.waitpid(pid, 0)
display({"text/html": "end"}, raw=True)
"""
    assert [each["text/html"] for each in t2.outcome(code).displays] == ["0", "1", "2", "end"]


def test_a_forged_report_is_read_within_bounds(box: Driver) -> None:
    part = "struct.pack('=?BQ', True, {index}, {length})"
    for index, length, data in ((255, 3, "abc"), (1, 1 << 60, "abc"), (1, 2, "\\xff\\xff"), (1, 80, "a" * 80)):
        code = f"""
import os, struct
os.pwrite(3, {part.format(index=index, length=length)} + b"{data}", {wire.DISPLAYS_AT + wire.LEFT_OUT.size})
os.pwrite(3, b"\\xff" * {wire.LEFT_OUT.size}, {wire.DISPLAYS_AT})
"""
        outcome = box.outcome(code, output_bytes=64)
        assert outcome.result.status is RunStatus.OK
        assert list(outcome.displays) == ([{"text/html": "\ufffd\ufffd"}] if length == 2 else [])
        assert set(outcome.displays_left_out) == {*wire.DISPLAY_TYPES, "other"}


@given(st.binary(max_size=400), st.integers(0, 200))
def test_no_report_breaks_the_node(data: bytes, limit: int) -> None:
    descriptor = os.memfd_create("report")
    os.pwrite(descriptor, data, wire.DISPLAYS_AT + wire.LEFT_OUT.size)
    displays, left_out = asyncio.run(displays_of(descriptor, limit))
    os.close(descriptor)
    json.dumps(displays).encode()
    assert len(displays) <= wire.MOST_DISPLAYS
    assert {kind for each in displays for kind in each} <= set(wire.DISPLAY_TYPES)
    assert set(left_out) <= {*wire.DISPLAY_TYPES, "other"}
    assert sum(len(text.replace("\ufffd", "")) for each in displays for text in each.values()) <= limit


def test_figures_are_shown_when_asked_for_and_at_the_end(plots: Driver) -> None:
    code = """
import matplotlib.pyplot as plt
plt.figure(figsize=(3, 2)).show()
plt.figure(figsize=(4, 2))
plt.figure(figsize=(5, 2))
plt.show()
print(plt.get_fignums())
plt.figure(figsize=(6, 2))
plt.close(plt.figure(figsize=(7, 2)))
"""
    outcome = plots.outcome(code)
    assert (outcome.result.output, outcome.result.stderr) == ("[]\n", "")
    assert sizes(outcome) == [(300, 200), (400, 200), (500, 200), (600, 200)]
    assert outcome.displays[0]["text/plain"] == "<Figure size 300x200 with 0 Axes>"
    unwanted = plots.outcome(code, keep_displays=False)
    assert (unwanted.result.output, unwanted.displays) == ("[1, 2, 3]\n", [])


def test_a_figure_that_is_shown_as_a_value_is_shown_once(plots: Driver) -> None:
    code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(3, 2))"
    outcome = plots.outcome(code, echo_last_expression=True)
    assert (outcome.result.output, sizes(outcome)) == ("<Figure size 300x200 with 0 Axes>\n", [(300, 200)])
    assert sizes(plots.outcome(f"{code}\ndisplay(plt.gcf())")) == [(300, 200)]


def test_a_figure_that_can_not_be_drawn_changes_no_status(plots: Driver) -> None:
    outcome = plots.outcome("import matplotlib.pyplot as plt\nplt.title(r'$\\frac{$')")
    assert (outcome.result.status, outcome.displays) == (RunStatus.OK, [])
    assert outcome.displays_left_out == {"image/png": 1}


def test_matplotlib_that_is_not_preloaded_shows_figures_too() -> None:
    late = Environment("late", packages=("matplotlib",))
    driver = Driver(NodeConfig(slots=1, environments=(late,)))
    try:
        code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(3, 2))\nplt.show()\nprint(plt.get_fignums())"
        outcome = driver.outcome(code, cpu_seconds=50.0)  # it looks for fonts first
        assert (outcome.result.output, sizes(outcome)) == ("[]\n", [(300, 200)])
    finally:
        driver.close()


def test_cells_show_what_they_made_themselves(plots: Driver) -> None:
    cells = Cells(plots, environment="data")
    assert cells.run("import matplotlib.pyplot as plt").run.displays == []
    assert sizes(cells.run("_ = plt.figure(figsize=(3, 2))").run) == [(300, 200)]
    assert cells.show("plt.get_fignums()") == "[]\n"
    (frame,) = cells.run("import pandas\npandas.DataFrame({'a': [1]})").run.displays
    assert frame["text/html"].startswith("<div>")
    plots.wait(cells.session.close())


def test_a_notebook_with_a_table_a_command_and_a_plot(plots: Driver) -> None:
    cells = Cells(plots, environment="data")
    cells.show("!printf 'day,sales\\n1,3\\n2,5\\n3,4\\n' > sales.csv")
    table = cells.run("import pandas as pd\nsales = pd.read_csv('sales.csv')\nsales")
    assert "<td>5</td>" in table.run.displays[0]["text/html"]
    drawn = cells.run(
        "import matplotlib.pyplot as plt\n"
        "fig, ax = plt.subplots(figsize=(5, 3), dpi=80, facecolor='white')\n"
        "ax.bar(sales.day, sales.sales, color='red')\n"
        "ax.set_xlabel('day')\n"
        "plt.show()"
    )
    assert (drawn.committed, drawn.not_checkpointable) == (True, ())
    png = base64.b64decode(drawn.run.displays[0]["image/png"])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    pixels = Image.open(io.BytesIO(png)).convert("RGB")
    width, height = pixels.size
    assert sum(pixels.getpixel((x, height // 2)) == (255, 0, 0) for x in range(width)) > width // 2  # the bars
    edge = [pixels.getpixel((x, height - 1)) for x in range(width)]
    assert set(edge) == {(255, 255, 255)}, "the label below the axis is not cut off"
    cells.rollback()
    assert cells.show("'plt' in globals(), sales.sales.sum()") == "(False, np.int64(12))\n"
    plots.wait(cells.session.close())


def test_a_cell_that_is_undone_still_shows_its_figures(plots: Driver) -> None:
    cells = Cells(plots, environment="data")
    cells.show("import matplotlib.pyplot as plt")
    failed = cells.fail("_ = plt.figure(figsize=(3, 2))\n1 / 0")
    assert sizes(failed.run) == [(300, 200)]
    assert cells.show("plt.get_fignums()") == "[]\n"
    kept = cells.run("_ = plt.figure(figsize=(4, 2))", keep_displays=False)
    assert (kept.committed, kept.run.displays) == (True, [])
    assert sizes(cells.run("plt.show()").run) == [(400, 200)]
    plots.wait(cells.session.close())


def test_each_cell_has_bounds_of_its_own(t2: Driver) -> None:
    cells = Cells(t2)
    show: dict[str, Any] = {"code": "display({'text/html': '<' * 2_000_000}, raw=True)"}
    for _ in range(2):
        assert cells.run(**show).run.displays_left_out == {"text/html": 1}
    assert cells.run("display({'text/html': '<'}, raw=True)").run.displays == [{"text/html": "<"}]
    t2.wait(cells.session.close())
