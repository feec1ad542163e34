"""An exec'ed interpreter with a single thread that preloads modules and then forks slots whenever the node asks.

At tier 2 it also builds the file system that runs see: the standard library, the packages of its set, the system's
libraries and programs, all read-only, and nothing else of the host.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import shutil
import signal
import site
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from cleaner_sandbox.inside import display, kernel, pages, report, run, wire
from cleaner_sandbox.inside.counted import Counted
from cleaner_sandbox.inside.session import SessionSlot
from cleaner_sandbox.inside.slot import Slot

COMMON = """
abc argparse array ast base64 bisect calendar cmath collections collections.abc contextlib copy csv dataclasses datetime
decimal enum fractions functools hashlib heapq inspect io itertools json linecache math numbers operator os pathlib
pickle pprint queue random re shutil signal statistics string struct subprocess sys tempfile textwrap threading time
tokenize traceback types typing uuid warnings weakref
"""
"""What programs import most. Every one costs each fork a little, so what is rare isn't here."""

MOST_FILES = 2 + 7
"""That come with a message: two sockets, and at tier 3 those of a cgroup."""
PACKAGE = __name__.partition(".")[0]


def main(channel: int) -> NoReturn:
    """Preload, then fork a slot for each message."""
    control = socket.socket(fileno=channel)
    settings: dict[str, Any] = wire.unpack(channel)
    kernel.go_first(kernel.nice_of_group(os.getppid()))
    try:
        preload(settings["modules"], settings["paths"], settings["warm_up"])
        if "mount" in settings["layers"]:
            folders = settings["files_folders"].items()
            shown = {place: functools.partial(bind, folder) for place, folder in folders}
            build_root(settings, settings["root"], bind, shown)
        settings.update(measure(), versions=versions(settings["report_versions"]))
        if "seccomp" in settings["layers"]:
            names = ("supervisor_filter", "filter", "session_filter", "asking_filter")
            settings |= {name: kernel.Program(code) for name, code in zip(names, settings["filters"], strict=True)}
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    except Exception as error:
        control.sendall(wire.pack({"problem": f"{type(error).__name__}: {error}"}))
        raise
    control.sendall(wire.pack({"versions": settings["versions"]}))
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, wire.CHUNK, MOST_FILES)
        except ConnectionError:
            message = b""
        if not message:
            os._exit(0)
        if kernel.fork() == 0:
            control.close()
            calls, requests = (socket.socket(fileno=descriptor) for descriptor in descriptors[:2])
            settings["counted"] = Counted(descriptors[2:]) if descriptors[2:] else None
            index, session, more = marshal.loads(message)
            become_slot(settings | more, index, calls, requests, SessionSlot if session else Slot)
        for descriptor in descriptors:
            os.close(descriptor)


def try_slot(channel: int) -> None:
    """Fork one slot without a zygote, to see whether this machine lets slots be.

    The slot says hello as all do once they are shut in, or what was refused; it ends when the channel does.
    """
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if kernel.fork() == 0:
        _try_slot(channel)
    os.close(channel)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _try_slot(channel: int) -> None:
    control = socket.socket(fileno=channel)
    _, requests = socket.socketpair()
    settings = wire.unpack(channel)
    try:
        build_root(settings, settings["root"], bind)
        become_slot(settings, 0, control, requests, Slot)
    except OSError as error:
        control.sendall(str(error.strerror).encode())
    finally:
        os._exit(1)


def preload(modules: list[str], paths: list[str], warm_up: str) -> None:
    """Load what runs will want, and leave nothing for the collector to look at."""
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    sys.path += paths
    display.install()
    site.setquit()  # `exit` and `help`, which an interpreter that begins with `-S` lacks and programs use
    site.sethelper()
    for name in (*COMMON.split(), *modules):
        importlib.import_module(name)
    exec(warm_up, {"__name__": "warm_up"})
    report.encoded(report.describe(ValueError("warm-up")))
    run.seed(run.ZYGOTE_SEED)
    atexit._clear()  # what the libraries want done at their end is none of a run's business
    # A run that imports a module finds what is installed, not what implements the sandbox.
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    gc.collect()
    gc.disable()
    pages.fill_holes()
    gc.freeze()
    pages.join_mappings()
    pages.own_code()
    pages.use_huge_pages()


def measure() -> dict[str, int]:
    """Bytes that the preloaded interpreter itself holds, limits on memory come on top of it, and that a socket can."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = [line.split() for line in file if line.startswith("Vm")]
    sizes = {name: int(size) * 1024 for name, size, _ in lines}
    left, right = socket.socketpair()
    with left, right:
        most = left.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return {
        "base_data": sizes["VmData:"],
        "base_size": sizes["VmSize:"],
        "base_held": sizes["VmRSS:"] + sizes["VmPTE:"],
        "socket_bytes": 3 * most,  # the kernel takes one message more than fits, and rounds up what it allocates
    }


def versions(modules: list[str]) -> dict[str, str]:
    """Of the interpreter and the set's libraries."""
    found = {"python": sys.version.split()[0]}
    for name in modules:
        found[name] = str(getattr(sys.modules.get(name), "__version__", ""))
    return found


def become_slot(
    settings: dict[str, Any], index: int, control: socket.socket, requests: socket.socket, kind: type[Slot]
) -> NoReturn:
    """Enter the slot's own namespaces, each of them once for all its runs, and serve."""
    run.restore_signals()
    layers = settings["layers"]
    supervisor_uid = settings["first_uid"] + 2 * index
    settings["run_uid"] = supervisor_uid + 1 if "uid" in layers else None
    settings["box"] = settings["box"].format(index=index)
    os.environ["HOME"] = f"{settings['box']}/work"
    if "mount" not in layers:
        os.environ["TMPDIR"] = f"{settings['box']}/tmp"  # where runs see the whole file system, /tmp isn't theirs
        folder = os.path.dirname(settings["box"])
        os.makedirs(folder, exist_ok=True)
        if "user" in layers or settings["own_user"]:
            os.chown(folder, supervisor_uid, supervisor_uid)
        if settings["own_user"]:
            kernel.become(supervisor_uid)
    else:
        shown = {}
        if settings.get("files"):
            owner = namespace_of(supervisor_uid + 1)
            tree = kernel.mapped_tree(settings["files"], owner)
            os.close(owner)
            shown = {settings["files_folder"]: functools.partial(attached, tree)}
        build_root(settings, settings["layers_folder"], functools.partial(own_files, settings["box"]), shown)
    flags = sum(flag for layer, flag in NAMESPACES.items() if layer in layers)
    if "user" in layers:
        enter_user_namespace(supervisor_uid)
        settings["run_uid"] = 1000 if "uid" in layers else None
    if flags:
        kernel.unshare(flags)
    if "pid" in layers and kernel.fork() != 0:
        os._exit(0)  # a pid namespace begins with its maker's next child; the zygote inherits that one
    if "uts" in layers:
        socket.sethostname("sandbox")
    slot = kind(settings, control, requests, own_proc("pid" in layers, "mount" in layers))
    try:
        slot.serve()
    except ConnectionError:  # the node is gone, in the midst of a message
        os._exit(0)


NAMESPACES = {
    "mount": kernel.CLONE_NEWNS,
    "net": kernel.CLONE_NEWNET,
    "ipc": kernel.CLONE_NEWIPC,
    "uts": kernel.CLONE_NEWUTS,
    "pid": kernel.CLONE_NEWPID,
}


def enter_user_namespace(supervisor_uid: int) -> None:
    """Become root of a user namespace that holds two of the host's otherwise unused ids: ours and the run's."""
    told, tell = os.pipe()
    helper = kernel.fork()
    if helper == 0:
        os.close(tell)
        if not os.read(told, 1):
            os._exit(1)  # there is no namespace: the kernel refused it
        for kind in ("uid", "gid"):
            with open(f"/proc/{os.getppid()}/{kind}_map", "w", encoding="ascii") as file:
                file.write(f"0 {supervisor_uid} 1\n1000 {supervisor_uid + 1} 1\n")
        os._exit(0)
    kernel.unshare(kernel.CLONE_NEWUSER)
    os.write(tell, b"x")
    _, status = os.waitpid(helper, 0)
    if status != 0:
        os._exit(1)
    os.close(told)
    os.close(tell)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def namespace_of(uid: int) -> int:
    """A user namespace in which what is root's belongs to one of the host's ids, as a descriptor."""
    told, tell = os.pipe()
    ended, end = os.pipe()
    helper = kernel.fork()
    if helper == 0:
        os.close(end)
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(tell, b"x")
        os.read(ended, 1)
        os._exit(0)
    os.read(told, 1)
    for kind in ("uid", "gid"):
        with open(f"/proc/{helper}/{kind}_map", "w", encoding="ascii") as file:
            file.write(f"0 {uid} 1\n")
    namespace = os.open(f"/proc/{helper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    for descriptor in (told, tell, ended, end):
        os.close(descriptor)
    os.waitpid(helper, 0)
    return namespace


def own_proc(own_pids: bool, own_mounts: bool) -> int:
    """A descriptor of `/proc` for the supervisor alone: runs find an empty folder there."""
    if own_pids and own_mounts:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    if own_mounts:
        kernel.mount("none", "/proc", "tmpfs", kernel.MS_RDONLY, "size=0,nr_inodes=1")
    return proc


Show = Callable[[str, str], None]
"""Show a path at another place."""


def build_root(
    settings: dict[str, Any], root: str, show: Show, more: Mapping[str, Callable[[str], None]] | None = None
) -> None:
    """Make and enter the file system that runs see.

    A zygote makes it from the host's files (`bind`). A slot makes it again from the zygote's (`own_files`). `more` are
    places with what shows something there.
    """
    box = settings["box"]
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("root", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    covered = []
    for path, kind in settings["layout"]:
        target = root + path
        if kind == "link":
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(path), target)
        elif kind == "cover":
            kernel.mount("none", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
            covered.append(target)
        elif kind == "device":
            bind(path, target, device=True)
        else:
            show(path, target)
    for path, put in (more or {}).items():
        put(root + path)
    for path in (box, settings["layers_folder"]):
        os.makedirs(root + path, exist_ok=True)
    os.symlink(f"{box}/tmp", f"{root}/tmp")
    os.symlink(f"{box}/shm", f"{root}/dev/shm")
    os.makedirs(f"{root}/proc")
    kernel.mount("/proc", f"{root}/proc", None, kernel.MS_BIND | kernel.MS_REC)
    for path, text in settings["texts"].items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text)
    for target in (*covered, root):
        flags = kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("none", target, None, flags, "mode=755")
    kernel.pivot_root(root)


def own_files(empty: str, path: str, target: str) -> None:
    """Show a path with inodes that only this slot has, so that a lock which a run takes on a library holds up no other.

    `empty` is a folder with nothing in it: the kernel makes no overlay of one folder alone.
    """
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
        flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
        try:
            kernel.mount("own", target, "overlay", flags, f"lowerdir={path}:{empty}")
        except OSError:  # as deep in overlays as the kernel goes
            bind(path, target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, target)


def attached(tree: int, target: str) -> None:
    """Show a tree that isn't mounted yet."""
    os.makedirs(target)
    kernel.attach(tree, target)


def bind(path: str, target: str, device: bool = False) -> None:
    """Show a path, read-only, at another place."""
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "ab"):
            pass
    kernel.mount(path, target, None, kernel.MS_BIND)
    # A device can be written to all the same; its times and rights can't be changed.
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_RDONLY
    kernel.mount("none", target, None, flags if device else flags | kernel.MS_NODEV)
