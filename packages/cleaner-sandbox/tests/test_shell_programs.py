"""Everyday programs in the sandbox's shell: they do what they do in a terminal, and complain of nothing."""

from __future__ import annotations

import shutil

import pytest

from cleaner_sandbox import Language, Limits
from cleaner_sandbox.protocol.results import RunStatus
from tests.conftest import Driver

FILES = {
    "names.txt": b"carol 3\nalice 1\nbob 2\nalice 4\n",
    "data.json": b'{"items": [{"n": 1}, {"n": 2}]}',
    "old.txt": b"one\ntwo\nthree\n",
    "new.txt": b"one\n2\nthree\n",
    "src/main.c": b'#include <stdio.h>\nint main(void) { printf("%d\\n", 6 * 7); return 0; }\n',
    "Makefile": b"out: names.txt\n\tsort -u names.txt > out\n\nclean:\n\trm -f out\n",
    "script.py": b"import json, sys\nprint(sum(item['n'] for item in json.load(open(sys.argv[1]))['items']))\n",
}
GIT = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main"
PROGRAMS = {
    "ls": (
        "ls -l names.txt | cut -c1-10; ls -d *.txt; ls -la > /dev/null",
        "-rw-r--r--\nnames.txt\nnew.txt\nold.txt\n",
    ),
    "cat": ("cat -n old.txt | tail -n 1", "     3\tthree\n"),
    "head": ("head -n 1 old.txt; head -c 3 old.txt", "one\none"),
    "tail": ("tail -n 1 old.txt; tail -n +3 old.txt", "three\nthree\n"),
    "sort": ("sort -k2 -n -r names.txt | head -n 1", "alice 4\n"),
    "uniq": ("cut -d' ' -f1 names.txt | sort | uniq -c | sort -rn | head -n 1 | tr -s ' '", " 2 alice\n"),
    "cut": ("cut -d' ' -f2 names.txt | paste -sd+", "3+1+2+4\n"),
    "tr": ("tr a-z A-Z < old.txt | tr -d '\\n'", "ONETWOTHREE"),
    "wc": ("wc -l < names.txt; wc -c old.txt", "4\n14 old.txt\n"),
    "sed": ("sed -i 's/two/TWO/' old.txt; sed -n '2p' old.txt; sed '/TWO/d' old.txt", "TWO\none\nthree\n"),
    "awk": ("awk '{s[$1] += $2} END {for (n in s) print n, s[n]}' names.txt | sort", "alice 5\nbob 2\ncarol 3\n"),
    "grep": ("grep -c alice names.txt; grep -rn 'int main' src; grep -oE '[0-9]+' names.txt | head -n 1", None),
    "find": ("find . -name '*.c' -o -name '*.py' | sort; find . -type f -size +100c | wc -l", None),
    "xargs": ("find . -name '*.txt' -print0 | sort -z | xargs -0 -n 1 -P 2 basename | sort", None),
    "diff": ("diff old.txt new.txt; diff -u old.txt new.txt | tail -n +3", None),
    "patch": ("diff -u old.txt new.txt > p; patch -s old.txt p; cmp old.txt new.txt && echo same", "same\n"),
    "cmp": (
        "cmp old.txt new.txt | cut -d' ' -f3-; cmp -s old.txt old.txt && echo same",
        "differ: byte 5, line 2\nsame\n",
    ),
    "cp": ("cp -r src copy; cp -p old.txt kept; cp -a copy again; ls copy again kept", None),
    "mv": ("mkdir d; mv old.txt d/; mv d e; ls e", "old.txt\n"),
    "rm": ("rm -rf src Makefile; rm -f none; ls -d src 2>/dev/null || echo gone", "gone\n"),
    "ln": (
        "ln -s old.txt link; ln old.txt hard; readlink link; cat link | head -n 1; stat -c %h hard",
        "old.txt\none\n2\n",
    ),
    "mkdir": ("mkdir -p a/b/c; mkdir -m 700 s; stat -c %a s; rmdir a/b/c; ls a", "700\nb\n"),
    "chmod": ("printf '#!/bin/sh\\necho ran\\n' > r; chmod +x r; ./r; chmod 600 r; stat -c %a r", "ran\n600\n"),
    "touch": ("touch -d 2020-01-02 t; date -u -r t +%F; stat -c %s t", "2020-01-02\n0\n"),
    "tar": (
        "tar czf a.tgz src names.txt; mkdir x; tar xzf a.tgz -C x; tar tzf a.tgz | sort; cat x/src/main.c | wc -l",
        None,
    ),
    "gzip": (
        "gzip -k old.txt; zcat old.txt.gz | head -n 1; gunzip -c old.txt.gz | cmp - old.txt && echo same",
        "one\nsame\n",
    ),
    "zip": ("zip -qr a.zip src; rm -r src; unzip -qo a.zip; ls src", "main.c\n"),
    "sha256sum": ("sha256sum old.txt > sums; sha256sum -c sums; md5sum < /dev/null", None),
    "base64": ("base64 old.txt | base64 -d | cmp - old.txt && echo same", "same\n"),
    "xxd": ("xxd -p old.txt | cut -c1-8; od -An -tx1 -N2 old.txt", "6f6e650a\n 6f 6e\n"),
    "date": ("date -u -d '2024-02-28 + 2 days' +%F", "2024-03-01\n"),
    "seq": ("seq 3 | tac | paste -sd,; seq -w 8 10 | tail -n 1", "3,2,1\n10\n"),
    "bc": ("echo 'scale=2; 22/7' | bc; expr 6 \\* 7", "3.14\n42\n"),
    "tee": ("echo hi | tee a b > /dev/null; cat a b", "hi\nhi\n"),
    "split": ("split -l 2 names.txt part_; ls part_*", "part_aa\npart_ab\n"),
    "join": (
        "sort names.txt > n; printf 'alice x\\nbob y\\n' | join - n | head -n 1; comm -12 n n | wc -l",
        "alice x 1\n4\n",
    ),
    "timeout": ("timeout 0.2 sleep 30; echo $?", "124\n"),
    "mktemp": ("f=$(mktemp); echo 1 > $f; cat $f; d=$(mktemp -d); ls -A $d", "1\n"),
    "env": (
        "env -i A=1 sh -c 'echo $A'; A=2 printenv A; nproc > /dev/null; id -un; hostname",
        "1\n2\nsandbox\nsandbox\n",
    ),
    "git": (
        f"{GIT} init -q r && cd r && cp ../old.txt f && {GIT} add f && {GIT} commit -qm first\n"
        f"cp ../new.txt f; git diff --stat | tail -n 1; {GIT} commit -qam second; {GIT} checkout -q -b side HEAD~1\n"
        f"echo four >> f; {GIT} commit -qam third; git log --oneline --all | wc -l; git status --short; git branch",
        " 1 file changed, 1 insertion(+), 1 deletion(-)\n3\n  main\n* side\n",
    ),
    "make": (
        "make -s && head -n 1 out; make; make -s clean; ls out 2>/dev/null || echo gone",
        "alice 1\nmake: 'out' is up to date.\ngone\n",
    ),
    "gcc": ("gcc -O1 -Wall -o main src/main.c && ./main", "42\n"),
    "python3": ("python3 script.py data.json; python3 -m json.tool data.json | head -n 1", "3\n{\n"),
    "perl": ("perl -ne 'print uc if /t/' old.txt", "TWO\nTHREE\n"),
    "jq": ("jq -c '[.items[].n] | add' data.json", "3\n"),
    "bash": (
        "cat > s.sh <<'END'\nset -euo pipefail\nfor x in \"$@\"; do echo \"<$x>\"; done\nEND\nbash s.sh a 'b c'",
        "<a>\n<b c>\n",
    ),
}
"""By the program that each is about: what is run, and what it prints where that is the same everywhere."""


def test_there_are_forty() -> None:
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize("name", PROGRAMS)
def test_everyday_programs_run_without_surprise(t2: Driver, name: str) -> None:
    if shutil.which(name, path="/usr/bin:/bin") is None:
        pytest.skip(f"there is no {name} here")
    code, expected = PROGRAMS[name]
    limits = Limits(cpu_seconds=30.0, wall_seconds=120.0)
    outcome = t2.outcome(code, language=Language.BASH, files=FILES, limits=limits)
    assert outcome.result.stderr == ""
    assert outcome.result.status is RunStatus.OK
    assert outcome.result.output
    if expected is not None:
        assert outcome.result.output == expected
