"""Bash in the place of the interpreter: a run becomes bash, in its own process, which is shut in already."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

BASH = "/bin/bash"
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
# One line, so that lines are counted from the program's own first one.
RUN = '__cell=$1 RANDOM=$2; set --; eval "$__cell"'


def environment() -> dict[str, str]:
    """What a shell begins with: the run's environment, with the interpreter and the system's programs in its path."""
    folders = dict.fromkeys((os.path.dirname(sys.executable), *FOLDERS))
    return {**os.environ, "PATH": ":".join(folders), "SHELL": BASH}


def become(code: str, seed: int) -> NoReturn:
    """Run a program as bash, in this very process."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    os.execve(BASH, ["bash", "-c", RUN, "bash", code, str(seed)], environment())
