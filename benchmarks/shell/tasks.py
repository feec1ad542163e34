"""Small tasks in a shell, made on the spot: files to write, lines to find, scripts to correct.

Each has its setup, its check, the command that solves it, and commands that fail. A seed gives the same tasks again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

from cleaner_rl.tasks import Message, Task
from cleaner_rl.tools import derive_seed

WORDS = """
amber birch cedar daisy ember fjord grove heron iris jade kiwi lotus maple noble olive pearl quail raven sable tulip
umber viola wheat yarrow zebra basil coral dune elder fern ginger hazel
""".split()  # noqa: SIM905 - a list of them would be four times as long
TRAINED_ON, HELD_OUT = 500, 1_000
"""Seeds of the tasks of training and of evaluations; demonstrations have another one."""


@dataclass(frozen=True, slots=True)
class ShellTask:
    """A task, and how one works on it."""

    kind: str
    asked: str
    check: str
    truth: str
    solution: str
    mistakes: tuple[str, ...]
    """Commands that fail: each has an exit code other than 0."""
    setup: str = ""

    def task(self, name: str) -> Task:
        """As a task of the library."""
        extra = {"setup": self.setup, "check": self.check} if self.setup else {"check": self.check}
        return Task(f"shell/{name}", (Message("user", self.asked),), "state", self.truth, source="shell", extra=extra)


def _lines(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    command = f"printf '%s\\n' {a} {b} {c} > {d}.txt"
    return ShellTask(
        "lines",
        f"Write the words {a}, {b} and {c} into {d}.txt, one per line.",
        f"cat {d}.txt",
        f"{a}\n{b}\n{c}",
        command,
        (command.replace(f"> {d}", f"> {e}/{d}"), command.replace("printf", "prinft")),
    )


def _folder(draw: random.Random) -> ShellTask:
    a, b, c = draw.sample(WORDS, 3)
    return ShellTask(
        "folder",
        f"Make the folder {a} with two empty files in it, {b}.txt and {c}.txt.",
        "find . -type f | sort",
        "\n".join(sorted([f"./{a}/{b}.txt", f"./{a}/{c}.txt"])),
        f"mkdir {a} && touch {a}/{b}.txt {a}/{c}.txt",
        (f"touch {a}/{b}.txt {a}/{c}.txt", f"mkdir {a}/{b} && touch {a}/{b}.txt {a}/{c}.txt"),
    )


def _find(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    number = draw.randrange(10, 100)
    return ShellTask(
        "find",
        f"One of the files in the folder {a} has a line with the word {b}. Write that line into {c}.txt.",
        f"cat {c}.txt",
        f"{b} {number}",
        f"grep -h {b} {a}/*.txt > {c}.txt",
        (f"grep -h {b} {a} > {c}.txt", f"grep -h {b} {a}/*.log > {c}.txt"),
        setup=f"mkdir {a}; echo '{d} 1' > {a}/{d}.txt; printf '{e} 2\\n{b} {number}\\n' > {a}/{e}.txt",
    )


def _count(draw: random.Random) -> ShellTask:
    a, b, c, d = draw.sample(WORDS, 4)
    times = draw.randrange(2, 9)
    rows = "\\n".join(draw.sample([b] * times + [d] * 3, times + 3))
    return ShellTask(
        "count",
        f"Count the lines of {a}.csv that have the word {b}, and write the number into {c}.txt.",
        f"cat {c}.txt",
        str(times),
        f"grep -c {b} {a}.csv > {c}.txt",
        (f"grep -c {b} {a}.txt > {c}.txt", f"gerp -c {b} {a}.csv > {c}.txt"),
        setup=f"printf '{rows}\\n' > {a}.csv",
    )


def _correct(draw: random.Random) -> ShellTask:
    a, b = draw.sample(WORDS, 2)
    what, right, wrong = draw.choice([("sum", "+", "-"), ("product", "*", "+"), ("difference", "-", "*")])
    one, two = draw.randrange(11, 99), draw.randrange(2, 11)
    value = {"sum": one + two, "product": one * two, "difference": one - two}[what]
    put = f"sed -i 's/{wrong}/{right}/' {a}.sh"
    return ShellTask(
        "correct",
        f"The script {a}.sh should print the {what} of its two arguments. Correct it.",
        f"bash {a}.sh {one} {two}",
        str(value),
        f"{put} && bash {a}.sh 2 1",
        (put.replace("/' ", "' "), put.replace(f"{a}.sh", f"{b}.sh")),
        setup=f"echo 'echo $(($1 {wrong} $2))' > {a}.sh",
    )


def _move(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    return ShellTask(
        "move",
        f"Move all log files from the folder {a} to the folder {b}.",
        f"echo {a}/*; echo {b}/*",
        f"{a}/{e}.txt\n" + " ".join(sorted([f"{b}/{c}.log", f"{b}/{d}.log"])),
        f"mv {a}/*.log {b}/",
        (f"mv *.log {b}/", f"mv {a}/*.logs {b}/"),
        setup=f"mkdir {a} {b}; touch {a}/{c}.log {a}/{d}.log {a}/{e}.txt",
    )


def _sort(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    rows = "\\n".join(draw.sample([c, d, e, c], 4))
    return ShellTask(
        "sort",
        f"Write the different lines of {a}.txt, sorted, into {b}.txt.",
        f"cat {b}.txt",
        "\n".join(sorted([c, d, e])),
        f"sort -u {a}.txt > {b}.txt",
        (f"sort -U {a}.txt > {b}.txt", f"sort -u {a}.csv > {b}.txt"),
        setup=f"printf '{rows}\\n' > {a}.txt",
    )


def _replace(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    return ShellTask(
        "replace",
        f"Replace the word {a} with {b} in {c}.ini.",
        f"cat {c}.ini",
        f"{d}={b}\n{e}=1",
        f"sed -i 's/{a}/{b}/' {c}.ini",
        (f"sed -i 's/{a}/{b}' {c}.ini", f"sed -i 's/{a}/{b}/' {c}.txt"),
        setup=f"printf '{d}={a}\\n{e}=1\\n' > {c}.ini",
    )


def _unpack(draw: random.Random) -> ShellTask:
    a, b, c, d, e = draw.sample(WORDS, 5)
    return ShellTask(
        "unpack",
        f"Unpack {a}.tar, and write the first line of {b}.txt, which is in it, into {c}.txt.",
        f"cat {c}.txt",
        d,
        f"tar -xf {a}.tar && head -n 1 {b}.txt > {c}.txt",
        (f"head -n 1 {b}.txt > {c}.txt", f"tar -xf {a}.tgz && head -n 1 {b}.txt > {c}.txt"),
        setup=f"printf '{d}\\n{e}\\n' > {b}.txt; tar -cf {a}.tar {b}.txt; rm {b}.txt",
    )


def _execute(draw: random.Random) -> ShellTask:
    a, b, c, d = draw.sample(WORDS, 4)
    return ShellTask(
        "execute",
        f"Make the script {a}.sh executable, run it, and write what it prints into {b}.txt.",
        f"./{a}.sh; cat {b}.txt",
        f"{c} {d}\n{c} {d}",
        f"chmod +x {a}.sh && ./{a}.sh > {b}.txt",
        (f"./{a}.sh > {b}.txt", f"chmod +x {a} && ./{a}.sh > {b}.txt"),
        setup=f"printf '#!/bin/bash\\necho {c} {d}\\n' > {a}.sh",
    )


KINDS: tuple[Callable[[random.Random], ShellTask], ...] = (
    _lines,
    _folder,
    _find,
    _count,
    _correct,
    _move,
    _sort,
    _replace,
    _unpack,
    _execute,
)


def shell_tasks(seed: int) -> Iterator[ShellTask]:
    """Yield tasks without end, all kinds in turn."""
    for number, kind in enumerate(cycle(KINDS)):
        yield kind(random.Random(derive_seed(seed, "shell", number)))


def library_tasks(seed: int, count: int) -> list[Task]:
    """Return the first tasks of a seed as tasks of the library."""
    return [each.task(f"{each.kind}-{seed}-{number}") for number, each in enumerate(islice(shell_tasks(seed), count))]
