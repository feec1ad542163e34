"""The least that a run can cost: one process that forks per run, bare or shut in as at tier 2. No node, no HTTP.

A program of its own, run by `measure` beside the service. It reads an order from stdin, writes the CPU milliseconds per
run, its own and its children's, to descriptor 3, and knows no deadlines, reports or verdicts.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import struct
import sys

# mypy: ignore-errors

libc = ctypes.PyDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
libc.syscall.argtypes = [ctypes.c_long] * 5
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
USER_NAMESPACE, MOUNT_NAMESPACE, NET_PID_IPC_NAMESPACES = 0x10000000, 0x00020000, 0x6C000000
READ_ONLY, NO_SUID, NO_DEV, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 32, 4096, 0x4000, 0x40000
BOX = "/box/run"


def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount(source, target, kind, flags, options=None):
    must(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, options and options.encode()))


def enter_world(root, folders, uid):
    """Once: a root with nothing but these folders, then all namespaces; goes on as the first process in them."""
    must(libc.unshare(MOUNT_NAMESPACE))
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount("root", root, "tmpfs", 0, "mode=755")
    for path in (*folders, "/proc", "/dev"):
        os.makedirs(root + path, exist_ok=True)
        mount(path, root + path, None, BIND | RECURSIVE)
        if path in folders:
            mount("none", root + path, None, BIND | REMOUNT | READ_ONLY | NO_SUID | NO_DEV)
    os.makedirs(root + BOX)
    os.chdir(root)
    dot = ctypes.cast(ctypes.c_char_p(b"."), ctypes.c_void_p).value
    must(libc.syscall(155, dot, dot, 0, 0)), must(libc.umount2(b".", 2))
    told, tell = os.pipe()
    if os.fork() == 0:
        os.read(told, 1)
        for kind in ("uid", "gid"):
            with open(f"/proc/{os.getppid()}/{kind}_map", "w") as file:
                file.write(f"0 {uid} 1\n1000 {uid + 1} 1\n")
        os._exit(0)
    must(libc.unshare(USER_NAMESPACE))
    os.write(tell, b"x"), os.wait(), os.setgroups([]), os.setresgid(0, 0, 0), os.setresuid(0, 0, 0)
    must(libc.unshare(MOUNT_NAMESPACE | NET_PID_IPC_NAMESPACES))
    if os.fork():
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    mount("none", "/proc", "tmpfs", READ_ONLY, "size=0,nr_inodes=1")


def rules():
    """Once: landlock's rules, to read everywhere and to write to the box."""
    found = must(libc.syscall(444, ctypes.addressof(ctypes.create_string_buffer(struct.pack("Q", 0x1FFF))), 8, 0, 0))
    for path, rights in (("/", 0b1101), ("/box", 0x1FFF)):
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, os.open(path, os.O_PATH)))
        must(libc.syscall(445, found, 1, ctypes.addressof(rule), 0))
    return found


def one(code, shut):
    """One run, from an empty folder to its output."""
    if shut:
        mount("box", BOX, "tmpfs", NO_SUID | NO_DEV, "mode=755,size=67108864,nr_inodes=1024")
        for name in ("work", "tmp", "shm"):
            os.mkdir(f"{BOX}/{name}", 0o700), os.chown(f"{BOX}/{name}", 1000, 1000)
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    pid = must(libc.fork())
    if pid == 0:
        [os.dup2(descriptor, target) for target, descriptor in enumerate(files)]
        if shut:
            program, ruleset, limits = shut
            os.setsid(), os.chdir(f"{BOX}/work"), os.setresgid(1000, 1000, 1000), os.setresuid(1000, 1000, 1000)
            must(libc.prctl(38, 1, 0, 0, 0)), must(libc.syscall(446, ruleset, 0, 0, 0))
            must(libc.close_range(3, 0x7FFFFFFF, 0)), must(libc.prctl(22, 2, program, 0, 0))
            [resource.setrlimit(kind, (value, value)) for kind, value in limits]
        exec(compile(code, "main.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush(), os._exit(0)
    if os.waitpid(pid, 0)[1] or not os.pread(files[1], 4096, 0):
        raise RuntimeError(os.pread(files[2], 4096, 0))
    [os.close(descriptor) for descriptor in files]
    if shut:
        must(libc.umount2(BOX.encode(), 2))


def used():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


order, shut = json.load(sys.stdin), None
sys.path += order["paths"]
[importlib.import_module(name) for name in order["modules"]], exec(compile(order["warm_up"], "", "exec"), {})
gc.collect(), gc.disable(), gc.freeze()
for low, high in [line.split()[0].split("-") for line in open("/proc/self/maps") if " rw-p " in line]:  # huge pages
    start, end = -(-int(low, 16) >> 21) << 21, int(high, 16) >> 21 << 21
    start < end and libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 25)
if order["isolated"]:
    enter_world(order["root"], order["folders"], order["uid"])
    code = ctypes.create_string_buffer(bytes.fromhex(order["filter"]))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", (len(code) - 1) // 8, ctypes.addressof(code)))
    shut = ctypes.addressof(program), rules(), order["limits"]
[one(order["code"], shut) for _ in range(5)]
before = used()
[one(order["code"], shut) for _ in range(order["runs"])]
os.write(3, json.dumps((used() - before) / order["runs"] * 1000).encode())
