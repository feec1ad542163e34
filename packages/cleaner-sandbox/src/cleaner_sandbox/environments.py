"""What programs find: packages, some of them loaded ahead, and files; and the choice of one by what is imported."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Environment:
    """Says what a program finds: packages, some of which are imported before a call comes, and files.

    `BARE`, `SCIENCE` and `DATA` are ready; `build_environment` makes others.
    """

    name: str
    modules: tuple[str, ...] = ()
    """Modules that are imported before a call."""
    packages: tuple[str, ...] = ()
    """Distributions that runs may import, with all they depend on; the standard library is always there."""
    site: str | None = None
    """Folder that the distributions are installed in (`pip install --target`); None: the node's own environment."""
    offers: tuple[str, ...] = ()
    """What else can be imported, for the choice of a set: packages aren't always called what their modules are."""
    warm_up: str = ""
    """A program that the interpreter runs once, so that what libraries load and compute late is there too."""
    files: str | None = None
    """Folder whose subfolder `work` is what working folders begin with; None: they begin empty."""

    @property
    def only_files(self) -> bool:
        """Return whether it has no packages of its own: programs then have those of the node's usual environment."""
        return self.files is not None and self.site is None

    def has(self, imported: set[str]) -> bool:
        """Return whether the set offers all of these top-level modules."""
        return imported <= offered((self,))


@functools.cache
def offered(sets: tuple[Environment, ...]) -> frozenset[str]:
    """The top-level modules that any of these sets has."""
    names = (name for each in sets for name in (*each.modules, *each.packages, *each.offers))
    return frozenset(name.partition(".")[0] for name in names)


BARE = Environment("bare")
SCIENCE = Environment(
    "science",
    modules=("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "sympy", "mpmath"),
    packages=("numpy", "sympy", "mpmath"),
    warm_up="""
import numpy, sympy
numpy.linalg.solve(numpy.eye(2), numpy.ones(2))
x, y = sympy.symbols("x y")
sympy.solve(x**2 - 2, x), sympy.solve([x + y - 3, x - y - 1], [x, y]), sympy.integrate(sympy.sin(x) * x, x)
sympy.simplify((x**2 - 1) / (x - 1)), sympy.factor(x**4 - 1), sympy.Matrix([[1, 2], [3, 4]]).inv(), sympy.pi.evalf(30)
""",
)
DATA = Environment(
    "data",
    modules=("numpy", "numpy.random", "pandas", "matplotlib", "matplotlib.pyplot"),
    packages=("numpy", "pandas", "matplotlib", "sympy", "mpmath"),
    warm_up="""
import io, pandas
from matplotlib import pyplot
frame = pandas.read_csv(io.StringIO("key,value\\na,1.5\\nb,2.5\\na,3.0\\n"))
repr(frame), frame._repr_html_(), frame.describe(), frame.groupby("key").mean(), frame.merge(frame, on="key")
frame.sort_values("value"), frame.pivot_table(index="key", values="value"), pandas.to_datetime(["2024-01-31"])
# No axes: their text would be drawn with fonts, which stay open as files, and runs inherit no files.
pyplot.figure().savefig(io.BytesIO(), format="png")
pyplot.close("all")
""",
)
"""Tables and plots. Needs the extra `cleaner-sandbox[data]`. Has what `SCIENCE` has, too, without
sympy loaded ahead."""


def usual_environments() -> tuple[Environment, ...]:
    """Return what a node preloads by default: `science` only where its extra is installed."""
    return (BARE, SCIENCE) if all(find_spec(name) for name in SCIENCE.packages) else (BARE,)


SHOWN = 8
"""Names that an error lists."""


def listed(names: Sequence[str]) -> str:
    """Return names as an error shows them: the first, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


SCANNED_CHARS = 32_768
"""Of a program that are searched for import statements."""
SEARCHED_CHARS = 1_048_576
"""Of a program that are searched for names of modules."""

_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(import|from)[ \t]+([^#\n;]+)", re.MULTILINE)


def imports_of(code: str) -> set[str]:
    """Top-level modules outside the standard library that a program imports, as far as a look at its text tells.

    A pattern rather than a parser: it runs in the node, for every call, on code that may not parse.
    """
    found: set[str] = set()
    for kind, imported in set(_IMPORT.findall(code)):
        names = [imported] if kind == "from" else imported.split(",")
        for name in names:
            top = name.strip().split(" ")[0].partition(".")[0]
            if top.isidentifier():
                found.add(top)
    return found - sys.stdlib_module_names


def mentioned(code: str, sets: Sequence[Environment]) -> set[str]:
    """What the sets offer and the text names, wherever: modules are also imported by functions and in strings."""
    found = {name for name in offered(tuple(sets)) if name in code and re.search(rf"\b{re.escape(name)}\b", code)}
    return found - sys.stdlib_module_names


def choose(code: str, sets: Sequence[Environment]) -> Environment:
    """The first set that has all that the program may import; or else, that it does; the last, the largest, if none.

    A module that is named and not imported only costs the larger set. Behind the first `SCANNED_CHARS` of a program, a
    name counts wherever it occurs: to look for statements there would hold up everybody. A program that is longer than
    `SEARCHED_CHARS` gets the largest set without a search.
    """
    if len(code) > SEARCHED_CHARS:
        return sets[-1]
    end = len(code) if len(code) <= SCANNED_CHARS else code.rfind("\n", 0, SCANNED_CHARS) + 1
    head = code[:end]
    imported = imports_of(head)
    if end < len(code):
        imported |= {name for name in offered(tuple(sets)) if code.find(name, end) >= 0}
    for wanted in (imported | mentioned(head, sets), imported):
        for each in sets:
            if each.has(wanted):
                return each
    return sets[-1]
