"""Any session of bash, against a model: its committed cells, evaluated one after the other by one plain bash.

The model knows nothing of the sandbox. Whatever was run, failed and rolled back, the session must have shown what the
plain bash shows for the cells that stayed, and end with the same files, folder, variables, functions and options.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cleaner_sandbox import Language, Limits, SessionRequest
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver
from tests.profile import examples

pytestmark = pytest.mark.timeout(600)

SETUP = """
x=0 s='two  words' n=1
declare -a list=(a 'b c')
declare -A map=([k]=v)
declare -i sum=1
declare -l low=ABC
f() { local x=inner; echo "f $# $1 $x"; }
export shown=outside
mkdir -p deep/er
"""
STATEMENTS = [
    "x=$((x + 1))",
    'echo "$x $s ${#list[@]} ${list[-1]-}"',
    'list+=("$x item")',
    "unset 'list[0]'; list=(\"${list[@]}\")",
    'map[$x]="$s"',
    'for k in $(printf "%s\\n" "${!map[@]}" | sort); do echo "$k=${map[$k]}"; done',
    "sum+=2",
    "low=MiXeD$x; echo $low",
    "s=$'line\\none\\ttab \\' \" \\\\ $ ` é \\e[0m'",
    "s=$'not utf-8: \\xff'; echo ${#s}",
    's=""; declare -p s',
    "EPOCHS=3 COMP_DIR=out",
    "echo ${EPOCHS-none} ${COMP_DIR-none}",
    "s='!'; t=~; t=${t:+home}",
    'export shown="$x $s"',
    "export -n shown; sh -c 'echo ${shown-not exported}'",
    "sh -c 'echo ${shown-} | od -c | head -n 3'",
    "f a 'b c'; f",
    'f() { echo "other $x"; g; }; g() { cat <<END\n$s in g\nEND\n}',
    "g() { case $1 in a*) return 0;; esac; for ((i = 0; i < 2; i++)); do echo $i; done; }; g b",
    "declare -F | sed 's/__keep//; /^declare -f $/d'",
    "export -f f; bash -c 'f exported' 2>/dev/null || true",
    "unset -f g; true",
    "shopt -s expand_aliases; alias show='echo alias'",
    "show one 2>/dev/null || true",
    "alias 2>/dev/null | grep -v __; true",
    "unalias -a",
    "set -- one 'two three' \"$x\"",
    'echo "$# $*"; [ $# -eq 0 ] || shift',
    "IFS=,; v='a,b c'; echo $v",
    'unset IFS; echo "${IFS-unset}"',
    "IFS=$' \\t\\n'",
    "set -o pipefail",
    "set +o pipefail; false | true",
    "set -u",
    'set +u; echo "[$never]"',
    "set -f; echo *; set +f",
    "set -o noglob",
    "set +o noglob; echo *",
    "shopt -s nullglob extglob; echo no*such +(x|y)",
    "shopt -u nullglob; echo no*such",
    "set -o noclobber; echo 1 >| over; { echo 2 > over; } 2>/dev/null || cat over",
    "set +o noclobber; echo 3 > over",
    "set -e",
    "set +e; false; true",
    "cd deep",
    'cd er && pwd -P | sed "s,.*/,,"',
    "cd ~ && cd - > /dev/null",
    'cd ..; cd "$HOME"',
    'ln -sfn "$HOME/deep" "$HOME/link"; cd "$HOME/link"; echo "${PWD#"$HOME"}"',
    'echo "${PWD#"$HOME"} ${OLDPWD#"$HOME"}"',
    "mkdir -p here && cd here",
    'echo "$x" >> log; cat log',
    "touch a.txt b.txt; ls",
    "rm -f a.txt; mv b.txt c.txt 2>/dev/null || true",
    "umask 027; : > private; stat -c %a private",
    "umask 022; umask",
    "readonly fixed=$x 2>/dev/null; echo $fixed",
    "declare -n ref=x; ref=7; echo $x; unset -n ref",
    "OPTIND=1; getopts ab: opt -a -b 2; echo $opt $OPTIND",
    "[[ abc =~ b(.) ]]; echo ${BASH_REMATCH[1]}",
    "printf -v x %03d 8; x=$((10#$x))",
    "unset PATH; echo ${PATH-unset}; PATH=/usr/bin:/bin",
    "unset x; x=${x-5}",
    "sleep 0 & wait; echo done",
    "read -r line <<< 'here string'; echo $line",
    "mapfile -t list <<< $'x\\ny'",
    "printf '%s\\n' \"${list[@]}\" | sort -r | head -n 2",
    "( cd /; x=sub; exit 0 ); echo $x",
    "trap 'true' USR1; trap - USR1",
]
FAILURES = [
    "false",
    "exit 3",
    "kill -9 $$",
    "kill -9 $PPID; sleep 60",
    "set -e; false; true",
    "no_such_program",
    "if )",
    "x=changed; cd /; rm -rf ~/*; exit 1",
    ": ${never:?}",
    "exec false",
]
FINAL = """
set +euf; IFS=$' \\t\\n'
for name in EPOCHS COMP_DIR x s n list map sum low shown t v fixed line opt OPTIND; do
declare -p $name 2>&1 | sed 's/.*: //'; done
declare -f f g; set -o | grep -v -e xtrace -e history -e monitor
shopt | grep -v -e login_shell -e restricted; umask; echo "$#:$*"
echo "${PWD#"$HOME"}"; cd; find . -printf '%M %p\\n' | sort
find . -type f | sort | while read -r name; do echo "$name: $(od -c "$name")"; done
"""
"""What is left: variables and their attributes, functions, options, the mask of files, arguments, folder, all files."""

CELL = st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4)
OPERATION = st.one_of(
    st.tuples(st.just("run"), CELL),
    st.tuples(st.just("run"), CELL),
    st.tuples(
        st.just("run"),
        st.builds(
            lambda statements, failure: [*statements, failure],
            st.lists(st.sampled_from(STATEMENTS), max_size=3),
            st.sampled_from(FAILURES),
        ),
    ),
    st.tuples(st.just("back"), st.integers(0, 10)),
)


def model(cells: list[str]) -> list[str]:
    """What one plain bash in an empty folder shows for these cells."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as outputs:
        lines = [f"{{ eval {shlex.quote(cell)}; }} > {outputs}/{number}" for number, cell in enumerate(cells)]
        subprocess.run(
            ["/bin/bash", "-c", "\n".join(lines), "bash"],
            env={"HOME": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        found = [Path(outputs) / str(number) for number in range(len(cells))]
        return [each.read_text(errors="replace") if each.exists() else "" for each in found]


@settings(
    max_examples=examples(25, short=4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(OPERATION, min_size=2, max_size=9))
@example(
    [("run", ["cd deep", "set -u", "umask 027; : > private; stat -c %a private"]), ("back", 1), ("run", ["cd er"])]
)
@example([("run", [each]) for each in STATEMENTS])
@example([("run", [STATEMENTS[0], each]) for each in FAILURES])
def test_any_session_is_its_committed_cells_evaluated_by_a_plain_bash(
    t2: Driver, operations: list[tuple[str, list[str] | int]]
) -> None:
    request = SessionRequest("bare", Limits(processes=64), language=Language.BASH)
    session = t2.wait(t2.node.open_session(request))
    committed: list[tuple[str, str]] = []

    def run(code: str) -> bool:
        outcome = t2.wait(session.run(code))
        assert outcome.committed == (outcome.result.status is RunStatus.OK), outcome
        if outcome.committed:
            committed.append((code, outcome.result.output))
        assert outcome.checkpoint == len(committed)
        return outcome.committed

    assert run(SETUP)
    for _, what in operations:
        if isinstance(what, list):
            run("\n".join(what))
        else:
            del committed[max(1, len(committed) - what % 4) :]
            assert t2.wait(session.rollback(len(committed))) == len(committed)
    assert run(FINAL)
    t2.wait(session.close())
    shown = model([code for code, _ in committed])
    for (code, output), expected in zip(committed, shown, strict=True):
        assert output == expected, code
