"""Which programs a shell command runs, and whose exit code it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner_rl.logs.commands import LONGEST, read_command


@pytest.mark.parametrize(
    ("code", "programs", "deciding"),
    [
        ("cd /w && python -m pytest -q", ["cd", "pytest"], {"cd", "pytest"}),
        ("cat a | grep b", ["cat", "grep"], {"grep"}),
        ("set -o pipefail; cat a | grep b", ["set", "cat", "grep"], {"set", "cat", "grep"}),
        ("make; echo $?", ["make", "echo"], {"echo"}),
        ("make || true", ["make", "true"], {"true"}),
        ("make\nls", ["make", "ls"], {"ls"}),
        ("git commit -m 'a; b && c'", ["git commit"], {"git commit"}),
        ("sudo timeout 60 make all", ["make"], {"make"}),
        ("A=1 uv run --no-sync pytest", ["pytest"], {"pytest"}),
        ("for f in *; do cat $f; done", ["cat"], {"cat"}),
        ("if [ -f x ]; then cat x; fi", ["[", "cat"], {"cat"}),
        ("cat > a.py <<'EOF'\nrm -rf /\nEOF\npython a.py", ["cat", "a.py"], {"a.py"}),
        ("make 2>&1 | tail -5", ["make", "tail"], {"tail"}),
        ("patch -p1 < fix.diff", ["patch"], {"patch", "fix.diff"}),
        ("./run.sh --all", ["./"], {"./", "run.sh"}),
        ("", [], set()),
        ("make " * LONGEST, [], set()),
    ],
)
def test_programs_and_those_that_the_exit_code_is_from_are_found(
    code: str, programs: list[str], deciding: set[str]
) -> None:
    found = read_command(code)
    assert len(found.programs) == len(programs)
    assert all(name in names for name, names in zip(programs, found.programs, strict=True))
    assert deciding <= found.deciding
    others = {name for names in found.programs for name in names} & set(programs) - deciding
    assert not others & found.deciding


@given(st.text(st.sampled_from("ab '\"\\|&;<>()$`\n-=/#*{}"), max_size=40))
def test_any_command_is_read(code: str) -> None:
    assert all(read_command(code).programs)
