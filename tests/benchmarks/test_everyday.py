"""The figures of a run that goes on after an earlier one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record, sandbox_everyday
from cleaner_sandbox import Language

SCRIPTS = [sandbox_everyday.Script(Language.BASH, (f"echo {n}", "false")) for n in range(7)]


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["sandbox_everyday", "logs", "--json", *options])
    with pytest.raises(SystemExit) as ended:
        sandbox_everyday.main()
    if ended.value.code:
        raise ValueError(ended.value.code)


def test_a_run_goes_on_after_the_sessions_in_its_file_and_adds_to_their_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def measure(found: Any, together: int) -> dict[str, Any]:
        seen.extend(script.cells[0] for script in found)
        figures = dict.fromkeys(sandbox_everyday.FIGURES, 0) | {"sessions": len(found), "calls": 2 * len(found)}
        return {**figures, "logged": {"bash": len(found)}, "statuses": {"ok": 1}, "problems": [{"problem": "none"}]}

    monkeypatch.setattr(sandbox_everyday, "scripts", lambda logs: list(SCRIPTS))
    monkeypatch.setattr(sandbox_everyday, "measure", measure)
    monkeypatch.setattr(sandbox_everyday, "PART", 2)
    monkeypatch.setattr(record, "commit", lambda: "abc")
    kept = tmp_path / "kept.json"
    run(monkeypatch, "--sessions", "3", "--save", str(kept))
    assert json.loads(kept.read_text())["figures"]["calls"] == 6
    run(monkeypatch, "--save", str(kept))
    figures = json.loads(kept.read_text())["figures"]
    assert (figures["sessions"], figures["calls"], figures["logged"]) == (7, 14, {"bash": 7})
    assert figures["statuses"] == {"ok": 4}
    assert sorted(seen) == sorted(script.cells[0] for script in SCRIPTS)
    monkeypatch.setattr(record, "commit", lambda: "def")
    with pytest.raises(ValueError, match="of commit abc"):
        run(monkeypatch, "--save", str(kept))


def test_a_session_of_failed_cells_is_counted_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = asyncio.run(sandbox_everyday.measure(SCRIPTS[:1], 1))
    assert [figures[name] for name in sandbox_everyday.FIGURES] == [1, 7, 0, 0, 0, 0]
    assert figures["compared"] == 2
