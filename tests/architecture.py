"""The diagram in ARCHITECTURE.md, drawn from the imports as they are.

python -m tests.architecture      draw it again
"""

from __future__ import annotations

import re
from pathlib import Path

import grimp

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
DIAGRAM = re.compile(r"(?<=```mermaid\n).*?(?=```\n)", re.DOTALL)
PACKAGE = "cleaner_rl"


def rooms() -> dict[str, set[str]]:
    """Each room, and the rooms that it imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    names = {module.split(".")[1] for module in graph.modules if module.count(".") >= 1}
    names = {name for name in names if graph.find_children(f"{PACKAGE}.{name}")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for importer in graph.modules:
        room = importer.partition(".")[2].partition(".")[0]
        for imported in graph.find_modules_directly_imported_by(importer) if room in names else ():
            other = imported.partition(".")[2].partition(".")[0]
            if other in names and other != room:
                found[room].add(other)
    return found


def drawn(imports: dict[str, set[str]]) -> str:
    """Mermaid's text: an arrow from each room to those that it imports, without arrows that follow from others."""
    reach: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in reach:
            reach[room] = imports[room].union(*(reached(each) for each in imports[room]))
        return reach[room]

    lines = ["graph BT\n"]
    for room in sorted(imports):
        follows = set().union(*(reached(each) for each in imports[room]))
        lines += [f"    {room} --> {each}\n" for each in sorted(imports[room] - follows)]
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(DIAGRAM.sub(lambda _: drawn(rooms()), PAGE.read_text()))
