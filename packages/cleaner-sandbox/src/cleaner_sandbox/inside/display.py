"""Figures and rich values: what a notebook shows beside text.

A value may say how it looks (`_repr_html_` and the like), a program may call `display`, and figures of matplotlib are
shown when the program asks for it or ends. What is shown goes to the report's file, in the form that `wire` describes;
its text is also printed, because not every reader can see more.

All of it happens in the program's own process. So the node holds it to the same bounds again, and reads it as data.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import io
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from cleaner_sandbox.inside import report, wire

METHODS = {
    "_repr_html_": "text/html",
    "_repr_json_": "application/json",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
}
BUNDLE = "_repr_mimebundle_"
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset})
"""Types of most values. To look for methods that they don't have takes longer than to print them."""
FIGURES = "matplotlib._pylab_helpers"
"""Knows which figures are open."""
OTHER = len(wire.DISPLAY_TYPES)


class Displays:
    """What one run, or one cell, has shown so far."""

    def __init__(self) -> None:
        self._bytes = self._count = 0
        self._left_out = [0] * (OTHER + 1)

    def begin(self) -> None:
        """Begin with none, in a cell."""
        self._bytes = self._count = 0
        self._left_out = [0] * (OTHER + 1)

    def add(self, bundle: dict[str, Any]) -> None:
        """Show one thing, in all its forms that fit; count the others."""
        parts: list[bytes] = []
        indices: list[int] = []
        self._count += 1
        for kind, value in bundle.items():
            index = wire.DISPLAY_TYPES.index(kind) if kind in wire.DISPLAY_TYPES else OTHER
            data = None if index == OTHER else _encoded(kind, value)
            most_bytes = report.own_report.display_bytes
            if data is None or self._bytes + len(data) > most_bytes or self._count > wire.MOST_DISPLAYS:
                self.leave_out(index)
                continue
            self._bytes += len(data)
            parts += [wire.DISPLAY_PART.pack(not parts, index, len(data)), data]
            indices.append(index)
        if not parts:
            return
        try:
            report.own_report.add(b"".join(parts))
        except OSError:  # it may write no more to a file, or has closed this one
            for index in indices:
                self.leave_out(index)

    def leave_out(self, index: int) -> None:
        """Count something that isn't shown."""
        self._left_out[index] += 1
        with contextlib.suppress(OSError):
            report.own_report.put(wire.LEFT_OUT.pack(*self._left_out), wire.DISPLAYS_AT)


displays = Displays()


def install() -> None:
    """Have programs find `display`, and what their values and figures look like shown."""
    builtins.display = display  # type: ignore[attr-defined]
    sys.displayhook = show_last
    if PathFinder.find_spec("matplotlib") is not None:  # every import would ask it
        sys.meta_path.insert(0, _Finder())


def display(*values: Any, raw: bool = False) -> None:
    """Show values, as in a notebook. `raw`: each is a dictionary from mime types to data."""
    for value in values:
        if raw:
            text = value.get("text/plain")
            if text is not None:
                sys.stdout.write(f"{text}\n")
            if report.own_report.display_bytes:
                displays.add(value)
        else:
            sys.stdout.write(f"{_show(value)}\n")


def show_last(value: Any) -> None:
    """Print the value of an expression, as the interpreter does, and show it if it can look like more than text."""
    if type(value) in PLAIN or not report.own_report.display_bytes or not _is_rich(value):
        sys.__displayhook__(value)
        return
    sys.__displayhook__(_Text(_show(value)))
    builtins._ = value  # type: ignore[attr-defined]


def end() -> None:
    """Show the figures that are still open at the end of a program or cell. Raises nothing."""
    if report.own_report.display_bytes:
        with contextlib.suppress(BaseException):  # of the program's own; it has ended, and that is its status
            for manager in sys.modules[FIGURES].Gcf.get_all_fig_managers():
                _show_figure(manager.canvas.figure)


class _Text:
    """What prints as a text that was made already."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _is_rich(value: Any) -> bool:
    # Of the type, because some objects have every attribute that they are asked for.
    kind = type(value)
    return hasattr(kind, BUNDLE) or any(hasattr(kind, name) for name in METHODS) or _is_figure(value)


def _show(value: Any) -> str:
    """Show a value in all its forms; its text, which is one of them."""
    text = repr(value)
    if report.own_report.display_bytes:
        if _is_figure(value):
            _show_figure(value)
        elif bundle := dict(_forms(value)):
            displays.add({"text/plain": text, **bundle})
    return text


def _forms(value: Any) -> Iterator[tuple[str, Any]]:
    """The forms of a value beside its text. Its methods are the program's; one that raises is left out."""
    for name, kind in METHODS.items():
        method = getattr(type(value), name, None)
        if method is None:
            continue
        try:
            data = method(value)
        except Exception:
            displays.leave_out(wire.DISPLAY_TYPES.index(kind))
            continue
        if (data := _without_metadata(data)) is not None:
            yield kind, data
    method = getattr(type(value), BUNDLE, None)
    if method is not None:
        try:
            yield from dict(_without_metadata(method(value, include=None, exclude=None)) or {}).items()
        except Exception:
            displays.leave_out(OTHER)


def _without_metadata(data: Any) -> Any:
    return data[0] if isinstance(data, tuple) else data


def _encoded(kind: str, value: Any) -> bytes | None:
    """One form of a display as the node reads it: text, or base64; None if there is none of this value."""
    try:
        if kind == "application/json":
            return json.dumps(value).encode()
        if kind in wire.BINARY_TYPES and isinstance(value, bytes):
            return base64.b64encode(value)
        return str(value).encode("utf-8", "replace")
    except Exception:
        return None


def _is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def _show_figure(figure: Any) -> None:
    """Show a figure as a notebook would, no label cut off, and close it, so that it isn't shown again."""
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, format="png", bbox_inches="tight" if figure.axes else None)
    except Exception:
        displays.leave_out(wire.DISPLAY_TYPES.index("image/png"))
    else:
        displays.add({"text/plain": repr(figure), "image/png": buffer.getvalue()})
    finally:
        if FIGURES in sys.modules:
            sys.modules[FIGURES].Gcf.destroy_fig(figure)


class _Finder:
    """Waits for the one module of matplotlib that says how a figure is shown, and has it do so here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find that module, as it would be found without us; nothing else."""
        if name != "matplotlib.backend_bases":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _show_here(module.FigureManagerBase)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _show_here(managers: Any) -> None:
    """Have `plt.show()` and `figure.show()`, which do nothing without a screen, show figures as displays."""
    show_nowhere = managers.show

    def show(self: Any) -> None:
        if report.own_report.display_bytes:
            _show_figure(self.canvas.figure)
        else:
            show_nowhere(self)

    managers.show = show
