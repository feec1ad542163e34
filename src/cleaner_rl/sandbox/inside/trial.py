"""A slot without a zygote: it sets itself up as all slots do, to see whether this machine lets it."""

from __future__ import annotations

import contextlib
import os
import socket

from cleaner_rl.sandbox.inside import kernel, wire
from cleaner_rl.sandbox.inside.slot import Slot
from cleaner_rl.sandbox.inside.zygote import become_slot, build_root


def main(channel: int) -> None:
    """Say hello as slots do once they are shut in, or what was refused; the slot ends when the channel does."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if kernel.fork() == 0:
        _try(channel)
    os.close(channel)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _try(channel: int) -> None:
    control = socket.socket(fileno=channel)
    _, requests = socket.socketpair()
    settings = wire.unpack(channel)
    try:
        build_root(settings)
        become_slot(settings, 0, control, requests, Slot)
    except OSError as error:
        control.sendall(str(error.strerror).encode())
    finally:
        os._exit(1)
