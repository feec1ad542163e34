"""Attacks on the machine's resources: time, processes and memory here, and with those of `resources_stored`, all of
them.

A run has 16 processes, 96 MB, 8 MB of disk and 64 descriptors; each attack wants a few times that.
"""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import (
    ANY_BUT_FAULT,
    ANY_FAILURE,
    OUT_OF_MEMORY,
    SMALL,
    SYSCALL,
    TIMEOUT,
    Attack,
    AttackClass,
)
from cleaner_sandbox.check.attacks.resources_kernel import ATTACKS as KERNEL_MEMORY
from cleaner_sandbox.check.attacks.resources_stored import DISK, KERNEL_OBJECTS
from cleaner_sandbox.protocol.results import RunStatus

TIME = {
    "spin": "while True: pass",
    "spin_in_c": "sum(range(10**15))",
    "spin_without_gil": """
import hashlib, threading
def burn():
    while True:
        hashlib.sha256(bytes(1 << 22)).digest()
for _ in range(4):
    threading.Thread(target=burn).start()
""",
    "sleep_forever": "time.sleep(1e6)",
    "read_own_pipe_forever": "os.read(os.pipe()[0], 1)",
    "lock_forever": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "int_to_str": "sys.set_int_max_str_digits(0)\nstr(7 ** 9_000_000)",
    "regex": "import re\nre.match(r'(a*)*b', 'a' * 40)",
    "ignore_cpu_signal": """
import resource, signal
for name in (signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF, signal.SIGALRM):
    signal.signal(name, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
while True: pass
""",
    "exec_to_reset_clock": """
try:
    os.execv(sys.executable, [sys.executable, "-S", "-c", "while True: pass"])
except OSError:
    while True: pass
""",
}

_HOLD = """
def hold(chunk, count):
    held = []
    for _ in range(count):
        held.append(chunk())
    win("held %d chunks" % count)
"""

_CUT = (
    SYSCALL
    + """
# The memory of a shared mapping is a file of the kernel's: while one page of it is mapped, all of it stays.
libc.mmap.restype = ctypes.c_void_p
def chunk(flags, descriptor, size=1 << 22):
    address = libc.mmap(None, ctypes.c_size_t(size), 3, flags, descriptor, ctypes.c_long(0))
    address != ctypes.c_void_p(-1).value or sys.exit(1)
    ctypes.memset(address, 1, size)
    libc.munmap(ctypes.c_void_p(address + 4096), ctypes.c_size_t(size - 4096))
"""
)

PROCESSES = {
    "fork_bomb": """
children = 0
for _ in range(48):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(4)
        os._exit(0)
    children += 1
if children > 16:
    win(children)
""",
    "fork_chain": """
import select
main = os.getpid()
read, write = os.pipe()
try:
    for _ in range(48):
        if os.fork():
            break
        os.write(write, b"x")
except OSError:
    pass
if os.getpid() != main:
    time.sleep(1.5)
    os._exit(0)
time.sleep(0.8)
alive = len(os.read(read, 100)) if select.select([read], [], [], 0)[0] else 0
if alive > 16:
    win(alive)
""",
    "respawn_chain": """
# Each process forks its heir and goes: by the time a killer has read its pid there is another one.
end = time.monotonic() + 3
try:
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            time.sleep(0.01)
        os._exit(0)
except OSError:
    pass
""",
    "spawn_bomb": """
import subprocess
held = []
for _ in range(40):
    try:
        held.append(subprocess.Popen(["/bin/sleep", "4"], stdout=subprocess.DEVNULL))
    except OSError:
        break
if sum(p.poll() is None for p in held) > 16:
    win(len(held))
""",
    "thread_bomb": """
import threading
started = 0
for _ in range(64):
    try:
        threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
    except (RuntimeError, MemoryError):
        break
    started += 1
if started > 16:
    win(started)
""",
    "vfork_bomb": SYSCALL
    + """
alive = 0
for _ in range(48):
    pid, error = syscall(56, 17, 0, 0, 0, 0)  # clone(SIGCHLD), which the C library's fork never sees
    if pid == 0:
        time.sleep(4)
        os._exit(0)
    if pid < 0:
        break
    alive += 1
if alive > 16:
    win(alive)
""",
}

MEMORY = {
    "memory_heap": "hold(lambda: bytearray(os.urandom(1) * (1 << 22)), 72)",
    "memory_private_mapping": """
import mmap
def chunk():
    area = mmap.mmap(-1, 1 << 22, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, 1 << 22, 4096):
        area[offset] = 1
    return area
hold(chunk, 72)
""",
    "memory_shared_mapping": """
import mmap
def chunk():
    area = mmap.mmap(-1, 1 << 22)
    for offset in range(0, 1 << 22, 4096):
        area[offset] = 1
    return area
hold(chunk, 72)
""",
    "memory_shared_mapping_cut": _CUT + "hold(lambda: chunk(0x21, -1), 72)  # MAP_SHARED | MAP_ANONYMOUS",
    "memory_dev_zero_cut": _CUT
    + """
zero = os.open("/dev/zero", os.O_RDWR)
hold(lambda: chunk(0x01, zero), 72)  # MAP_SHARED
""",
    "memory_file": """
def chunk():
    descriptor = os.memfd_create("x")
    os.write(descriptor, bytes(1 << 22)) == 1 << 22 or sys.exit(1)
    return descriptor
hold(chunk, 48)  # fewer than the descriptors that a run has
""",
    "memory_file_through_children": """
# The memory of a memfd belongs to no process: fill it from children that are gone when somebody counts.
descriptor = os.memfd_create("x")
for _ in range(12):
    pid = os.fork()
    if pid == 0:
        for _ in range(6):
            os.write(descriptor, bytes(1 << 22))
        os._exit(0)
    os.waitpid(pid, 0)
size = os.fstat(descriptor).st_size
time.sleep(0.5)
if size > 200 << 20:
    win(size)
""",
    "memory_dev_shm": """
with open("/dev/shm/@NONCE@", "wb") as file:
    try:
        hold(lambda: file.write(bytes(1 << 22)), 48)
    finally:
        try:
            os.unlink("/dev/shm/@NONCE@")
        except OSError:
            pass
""",
    "memory_sysv": SYSCALL
    + """
libc.shmat.restype = ctypes.c_void_p
def chunk():
    shm = libc.shmget(0, 1 << 22, 0o1600)
    shm >= 0 or sys.exit(1)
    address = libc.shmat(shm, None, 0)
    libc.shmctl(shm, 0, None)
    ctypes.memset(address, 1, 1 << 22)
hold(chunk, 72)
""",
    "memory_raise_own_limit": """
import resource
for name in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_RSS):
    try:
        resource.setrlimit(name, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        resource.setrlimit(name, (resource.getrlimit(name)[1],) * 2)
hold(lambda: bytearray(os.urandom(1) * (1 << 22)), 72)
""",
    "memory_pipes": """
import fcntl
filled = 0
held = []
try:
    for _ in range(56):
        pair = os.pipe()
        held.append(pair)
        fcntl.fcntl(pair[1], 1031, 1 << 20)
        os.set_blocking(pair[1], False)
        filled += os.write(pair[1], bytes(1 << 20))
except OSError:
    pass
if filled > 40 << 20:
    win(filled)
""",
    "memory_socket_buffers": """
import socket
filled, held = 0, []
try:
    for _ in range(400):
        pair = socket.socketpair()
        held.append(pair)
        for end in pair:
            end.setblocking(False)
            try:
                while True:
                    filled += end.send(bytes(65536))
            except BlockingIOError:
                pass
except OSError:
    pass
if filled > 40 << 20:
    win(filled)
""",
    "memory_locked": SYSCALL
    + """
import mmap
area = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area))), ctypes.c_size_t(48 << 20)) == 0:
    win("48 MB can't be swapped out")
""",
}

_EXECUTED = """
# Programs that share nothing with the interpreter: what a fork of it holds may not be taken off their account.
import subprocess
{prepare}
held = []
try:
    for _ in range(10):
        command = [{program}, "if=/dev/zero", "of=/dev/null", "bs=30M", "count=1000000"]
        held.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
    time.sleep(0.8)
    if all(process.poll() is None for process in held):
        win("10 x 30 MB")
except OSError:
    pass
"""

_MIXED = (
    Attack(
        "memory_of_executed_programs",
        AttackClass.RESOURCES,
        _EXECUTED.format(prepare="", program="'/bin/dd'"),
        ANY_BUT_FAULT,
        limits=replace(SMALL, cpu_seconds=4.0, wall_seconds=8.0),
    ),
    Attack(
        "memory_of_unreadable_program",
        AttackClass.RESOURCES,
        _EXECUTED.format(
            prepare="import shutil\nshutil.copy('/bin/dd', 'dd')\nos.chmod('dd', 0o111)",
            program="os.path.abspath('dd')",
        ),
        ANY_BUT_FAULT,
        limits=replace(SMALL, cpu_seconds=4.0, wall_seconds=8.0),
    ),
    Attack(
        "thread_churn",
        AttackClass.RESOURCES,
        """
# Threads that are gone when somebody looks.
import threading
while True:
    threading.Thread(target=sum, args=(range(3000),)).start()
""",
        frozenset({RunStatus.TIMEOUT, RunStatus.ERROR}),
        limits=replace(SMALL, wall_seconds=20.0),
    ),
    Attack(
        "process_churn",
        AttackClass.RESOURCES,
        """
# Processes that are gone when somebody looks, and that nobody waits for.
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            sum(range(100_000))
            os._exit(0)
    except BlockingIOError:
        time.sleep(0.001)
""",
        frozenset({RunStatus.TIMEOUT, RunStatus.ERROR}),
        limits=replace(SMALL, wall_seconds=20.0),
        wall=10,
    ),
    Attack(
        "memory_many_processes",
        AttackClass.RESOURCES,
        """
# Each is within the limit of one process; together they hold three times the limit of the run.
read, write = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        area = bytearray(b"x" * (24 << 20))
        os.write(write, b"x")
        time.sleep(1.2)
        os._exit(0)
for _ in range(12):
    os.read(read, 1)
time.sleep(0.8)
win("12 x 24 MB")
""",
        OUT_OF_MEMORY,
        limits=replace(SMALL, cpu_seconds=4.0, wall_seconds=8.0),
        wall=12,
    ),
    Attack(
        "memory_sockets_of_many_processes",
        AttackClass.RESOURCES,
        """
# What was sent and isn't read is no process's memory. Larger buffers, if they can be had, hold more.
import socket
def fill(filled=0):
    try:
        while True:
            pair = socket.socketpair()
            held.append(pair)
            for end in pair:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                except OSError:
                    pass
                end.setblocking(False)
                try:
                    while True:
                        filled += end.send(bytes(32768))
                except BlockingIOError:
                    pass
    except OSError:
        return filled
held = []
read, write = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        os.write(write, b"%9d" % fill())
        time.sleep(2)
        os._exit(0)
filled = sum(int(os.read(read, 9)) for _ in range(12))
time.sleep(0.8)
if filled > 96 << 20:
    win(filled)
""",
        OUT_OF_MEMORY,
        limits=replace(SMALL, cpu_seconds=4.0, wall_seconds=8.0),
        wall=12,
    ),
    Attack(
        "memory_sockets_nobody_accepts",
        AttackClass.RESOURCES,
        """
# A connection that waits to be accepted has no descriptor, and what was sent on it stays when the sender closes.
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("listener")
listener.listen(4096)
filled = 0
for _ in range(1000):
    with socket.socket(socket.AF_UNIX) as sender:
        sender.setblocking(False)
        try:
            sender.connect("listener")
            while True:
                filled += sender.send(bytes(32768))
        except BlockingIOError:
            pass
time.sleep(0.8)
if filled > 96 << 20:
    win(filled)
""",
        OUT_OF_MEMORY,
        limits=replace(SMALL, cpu_seconds=4.0, wall_seconds=8.0),
        wall=12,
    ),
    Attack(
        "cpu_in_children",
        AttackClass.RESOURCES,
        """
# Each child is within the limit of one process; together they use three times that of the run.
import resource
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        end = time.process_time() + 0.7
        while time.process_time() < end: pass
        os._exit(0)
    os.waitpid(pid, 0)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if used.ru_utime + used.ru_stime > 3:
    win("CPU of the tree")
""",
        frozenset({RunStatus.TIMEOUT, RunStatus.ERROR}),
        limits=replace(SMALL, wall_seconds=8.0),
        wall=10,
    ),
    Attack("huge_power", AttackClass.RESOURCES, "10 ** 10 ** 8", ANY_FAILURE),
    Attack("deep_recursion", AttackClass.RESOURCES, "def f(): return f()\nf()", ANY_FAILURE),
    Attack(
        "deep_recursion_unbounded",
        AttackClass.RESOURCES,
        "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        ANY_FAILURE,
    ),
    Attack(
        "decompression_bomb",
        AttackClass.RESOURCES,
        """
import zlib
packer = zlib.compressobj(1)
bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
if len(zlib.decompress(bomb)) == 300 << 20:
    win("300 MB of 0.3")
""",
        OUT_OF_MEMORY,
        replace(SMALL, cpu_seconds=8.0, wall_seconds=16.0),
        24,
    ),
    Attack(
        "clone_parent",
        AttackClass.RESOURCES,
        SYSCALL
        + """
# A child of one's parent counts for nobody whom its own parent waits for.
child, error = syscall(56, 0x8000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
if child > 0:
    win(child)
""",
    ),
    Attack(
        "deep_folders",
        AttackClass.RESOURCES,
        """
# Deeper than a path may be long, and than a recursive clean-up can go; then closed to its owner.
depth = 0
try:
    for depth in range(1500):
        os.mkdir("d" * 8)
        os.chdir("d" * 8)
    open("@NONCE@", "w").close()
    os.chmod(".", 0)
except OSError:
    pass
""",
        limits=replace(SMALL, files=4000),
    ),
)

ATTACKS: tuple[Attack, ...] = (
    *(Attack(name, AttackClass.RESOURCES, text, wall=4) for name, text in PROCESSES.items()),
    *(Attack(name, AttackClass.RESOURCES, _HOLD + text, ANY_BUT_FAULT) for name, text in MEMORY.items()),
    *(Attack(name, AttackClass.RESOURCES, text) for name, text in (DISK | KERNEL_OBJECTS).items()),
    *(Attack(name, AttackClass.RESOURCES, text, TIMEOUT) for name, text in TIME.items()),
    *_MIXED,
    *KERNEL_MEMORY,
)
