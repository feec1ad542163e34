"""A world to throw away: own user, pid, mount, network, IPC and host-name namespaces, over a copy of the file system
that exists in memory only. Attacks that succeed in it harm nothing.

`throwaway_command` gives the arguments that run a program in such a world: an interpreter that builds it and then
executes the program. A first process reaps what the program leaves, and ends with it; so does everything in the world.

Limits: needs root. `/dev` and `/sys` are the machine's own (attacks open files there and write nothing).
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Sequence

from cleaner_sandbox.inside import kernel

CLONE_NEWCGROUP = 0x02000000
NAMESPACES = sum(
    (
        kernel.CLONE_NEWUSER,
        kernel.CLONE_NEWPID,
        kernel.CLONE_NEWNS,
        kernel.CLONE_NEWNET,
        kernel.CLONE_NEWIPC,
        kernel.CLONE_NEWUTS,
        CLONE_NEWCGROUP,
    )
)
SIZE = "size=1g,mode=755"
SAFETY_NET = {
    "RLIMIT_NPROC": 2000,
    "RLIMIT_FSIZE": 1 << 29,
    "RLIMIT_AS": 8 << 30,  # many threads reserve much that they never use
    "RLIMIT_DATA": 1 << 30,
}
"""Above what attacks want, far below what a machine has: a runner that keeps all that it is told takes all it gets."""
FIRST_PID = 20_000
"""Numbers of processes in this world are unlike those in the namespaces of runs."""
SIOCADDRT, SIOCSIFFLAGS, IFF_UP_AND_RUNNING = 0x890B, 0x8914, 0x41


def throwaway_command(program: Sequence[str]) -> list[str]:
    """Return the arguments that run a program in throw-away namespaces, as `subprocess.run` takes them."""
    start = f"import sys; from {__name__} import main; main(sys.argv[1:])"
    return [sys.executable, "-c", start, *program]


def main(program: Sequence[str]) -> None:
    """Build the world, and execute the program in it."""
    import resource  # which Windows lacks

    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)  # nobody would end it but who started it
    _files()
    _unshare()
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)
    # We are the first process: when we end, the kernel ends all others.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    kernel.mount("proc", "/proc", "proc", 0)
    _network()
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
        file.write(str(FIRST_PID))
    for kind, value in SAFETY_NET.items():
        resource.setrlimit(getattr(resource, kind), (value, value))
    child = os.fork()
    if child == 0:
        os.setsid()
        os.execv(program[0], list(program))
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _unshare() -> None:
    """Enter the namespaces. All of the host's users exist here, so that nodes find the ids they use."""
    told, tell = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.read(told, 1)
        for kind in ("uid", "gid"):
            with open(f"/proc/{os.getppid()}/{kind}_map", "w", encoding="ascii") as file:
                file.write("0 0 4294967295")
        os._exit(0)
    kernel.unshare(NAMESPACES)
    os.write(tell, b"x")
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError("the ids of the throw-away namespace could not be set")


def _files() -> None:
    """The machine's files with a layer above them that takes all changes, and is memory."""
    here = os.getcwd()
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("layer", "/tmp", "tmpfs", 0, SIZE)
    for name in ("upper", "work", "root"):
        os.mkdir(f"/tmp/{name}")
    root = "/tmp/root"
    kernel.mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work")
    for path in ("/dev", "/sys", "/proc"):
        kernel.mount(path, root + path, None, kernel.MS_BIND | kernel.MS_REC)
    for path in ("/tmp", "/dev/shm", "/run"):
        kernel.mount("none", root + path, "tmpfs", 0, "size=256m,mode=1777")
    kernel.mount("devpts", f"{root}/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666")
    kernel.mount(f"{root}/dev/pts/ptmx", f"{root}/dev/ptmx", None, kernel.MS_BIND)
    kernel.pivot_root(root)
    os.chdir(here)


def _network() -> None:
    """Loopback alone, and as the way to everywhere: addresses outside have a route, and nothing leaves."""
    import fcntl  # which Windows lacks

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP_AND_RUNNING))
        address = struct.pack("=H14x", socket.AF_INET)
        device = bytearray(b"lo\0")
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(device))
        route = bytearray(120)  # a `struct rtentry`: destination, gateway, mask, flags, ..., device
        struct.pack_into("=Q16s16s16sH", route, 0, 0, address, address, address, 1)
        struct.pack_into("=Q", route, 88, pointer)
        fcntl.ioctl(control, SIOCADDRT, bytes(route))
