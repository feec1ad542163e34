"""Attacks on the runs after: something is left, and another caller's run in the same slot looks for it.

`program` leaves it, `after` prints the marker if it is there. That the next run is otherwise unaffected is checked by a
canary after every attack of the suite.
"""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import ANY_BUT_FAULT, OK_OR_ERROR, SMALL, SYSCALL, Attack, AttackClass

_PAIRS: dict[str, tuple[str, str]] = {
    "file_in_folder": (
        "open('@NONCE@', 'w').close()",
        "if os.path.exists('@NONCE@'): win()",
    ),
    "file_in_tmp": (
        "import tempfile\nfor d in {'/tmp', tempfile.gettempdir()}:\n    open(d + '/@NONCE@', 'w').close()",
        "import tempfile\nfor d in {'/tmp', tempfile.gettempdir()}:\n    if os.path.exists(d + '/@NONCE@'): win(d)",
    ),
    "file_in_other_places": (
        """
home = os.path.expanduser("~")
for folder in ("/var/tmp", "/run/lock", "/run/user/0", home, home + "/.cache", "/var/lib", "/srv"):
    try:
        os.makedirs(folder, exist_ok=True)
        open(folder + "/@NONCE@", "w").close()
    except OSError:
        pass
""",
        """
home = os.path.expanduser("~")
for folder in ("/var/tmp", "/run/lock", "/run/user/0", home, home + "/.cache", "/var/lib", "/srv"):
    if os.path.exists(folder + "/@NONCE@"): win(folder)
""",
    ),
    "shared_memory": (
        "open('/dev/shm/@NONCE@', 'w').close()",
        "if os.path.exists('/dev/shm/@NONCE@'): win()",
    ),
    "shared_memory_module": (
        """
from multiprocessing import shared_memory, resource_tracker
resource_tracker.register = lambda *_: None
shared_memory.SharedMemory("@NONCE@m", create=True, size=64)
os._exit(0)
""",
        """
from multiprocessing import shared_memory
try:
    shared_memory.SharedMemory("@NONCE@m")
    win()
except OSError:
    pass
""",
    ),
    "named_semaphore": (
        SYSCALL + "libc.sem_open(b'/@NONCE@s', os.O_CREAT, 0o600, 1)",
        SYSCALL + "libc.sem_open.restype = ctypes.c_void_p\nif libc.sem_open(b'/@NONCE@s', 0): win()",
    ),
    "sysv_shared_memory": (
        SYSCALL + "libc.shmget(@KEY@, 4096, 0o1666)",
        SYSCALL + "if libc.shmget(@KEY@, 4096, 0) >= 0: win()",
    ),
    "sysv_semaphore": (
        SYSCALL + "libc.semget(@KEY@, 1, 0o1666)",
        SYSCALL + "if libc.semget(@KEY@, 1, 0) >= 0: win()",
    ),
    "sysv_queue": (
        SYSCALL + "libc.msgget(@KEY@, 0o1666)",
        SYSCALL + "if libc.msgget(@KEY@, 0) >= 0: win()",
    ),
    "posix_queue": (
        SYSCALL + "syscall(240, b'@NONCE@q', os.O_CREAT | os.O_RDWR, 0o666, 0)",
        SYSCALL + "if syscall(240, b'@NONCE@q', 0, 0, 0)[0] >= 0: win()",
    ),
    "key_in_keyring": (
        SYSCALL + "for ring in (-4, -5, -3):\n    syscall(248, b'user', b'@NONCE@', b'x', 1, ring)",
        SYSCALL + "for ring in (-4, -5, -3):\n    if syscall(250, 10, ring, b'user', b'@NONCE@', 0)[0] > 0: win()",
    ),
    "patched_modules": (
        """
import builtins, json, random
builtins.print = json.dumps = random.random = lambda *_: 0
builtins.cc_left = "@NONCE@"
sys.modules["math"] = json
""",
        """
import builtins, math, random
if hasattr(builtins, "cc_left") or random.random() == 0 or not hasattr(math, "pi"): win()
""",
    ),
    "parent_memory": (
        SYSCALL
        + """
# The interpreter that runs are forked from has the same addresses: find an object of ours there, and change it.
import builtins
mark = next((v for v in vars(builtins).values() if isinstance(v, str) and len(v) > 30), None)
address = id(mark) + sys.getsizeof("") - 1
for pid in {os.getppid(), 1} - {0, os.getpid()}:
    try:
        with open("/proc/%d/mem" % pid, "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(b"@NONCE@")
    except (OSError, ValueError, OverflowError):
        pass
""",
        """
import builtins
if any("@NONCE@" in v for v in vars(builtins).values() if isinstance(v, str)): win()
""",
    ),
    "shared_writable_pages": (
        SYSCALL
        + """
# Mappings shared with whoever forked this process.
for line in open("/proc/self/maps"):
    span, rights, *_ = line.split()
    if rights.startswith("rw") and rights.endswith("s"):
        win(line)
""",
        "pass",
    ),
    "site_packages": (
        """
import site, sysconfig
places = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
for folder in [*places, sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")]:
    for name in ("@NONCE@.pth", "@NONCE@mod.py"):
        try:
            os.makedirs(folder, exist_ok=True)
            open(os.path.join(folder, name), "w").write("import sys; sys.cc_left = 1\\n")
        except OSError:
            pass
""",
        """
try:
    import @NONCE@mod
    win("a module of an earlier run")
except ImportError:
    pass
if hasattr(sys, "cc_left"): win("a path file of an earlier run")
""",
    ),
    "byte_code": (
        """
# The byte code of a library's module: opened for writing, and left as it is; or a new module without a source.
import importlib.util, json, py_compile
for path in (importlib.util.cache_from_source(json.__file__), json.__file__):
    try:
        open(path, "r+b").close()
        win(path)
    except OSError:
        pass
open("m.py", "w").write("left = 1")
try:
    py_compile.compile("m.py", os.path.join(os.path.dirname(os.__file__), "@NONCE@mod.pyc"))
except OSError:
    pass
""",
        "try:\n    import @NONCE@mod\n    win()\nexcept ImportError:\n    pass",
    ),
    "process_state": (
        """
import resource, signal
os.umask(0o777)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.environ["CC_LEFT"] = "1"
os.putenv("CC_LEFT", "1")
try:
    os.nice(19)
except OSError:
    pass
os.chdir("/")
sys.path.insert(0, "/cc_left")
sys.setrecursionlimit(50)
import random
random.seed(1)
""",
        """
import signal
mask = os.umask(0o22)
if (mask == 0o777 or signal.pthread_sigmask(signal.SIG_BLOCK, []) or "CC_LEFT" in os.environ
        or os.getpriority(os.PRIO_PROCESS, 0) == 19 or "/cc_left" in sys.path or sys.getrecursionlimit() == 50):
    win()
""",
    ),
    "shared_file_flags": (
        """
# Flags and offsets belong to the open file, which may be shared with other runs or with the node.
import fcntl
for number in range(0, 64):
    try:
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_NONBLOCK | os.O_APPEND)
        os.lseek(number, 7, os.SEEK_SET)
    except OSError:
        pass
""",
        """
import fcntl
for number in range(0, 64):
    try:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK: win(number)
    except OSError:
        pass
""",
    ),
    "daemon_answers": (
        """
import socket
try:
    if os.fork() == 0:
        os.setsid()
        s = socket.socket(socket.AF_UNIX)
        s.bind("\\0@NONCE@")
        s.listen()
        time.sleep(3)
        os._exit(0)
    time.sleep(0.1)
except OSError:
    pass
""",
        """
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\\0@NONCE@")
    win()
except OSError:
    pass
""",
    ),
    "file_lock": (
        """
# A lock on a file that all runs can open, held by a process that stays.
import fcntl
try:
    file = open(os.__file__, "rb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.fork() == 0:
        os.setsid()
        time.sleep(3)
        os._exit(0)
except OSError:
    pass
""",
        """
import fcntl
try:
    fcntl.flock(open(os.__file__, "rb"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    win()
except OSError:
    pass
""",
    ),
    "pending_timer": (
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\nos._exit(0)",
        "time.sleep(0.5)",
    ),
}

MUCH_INPUT = bytes(40 << 20)
"""More than a run has read when somebody first looks whether it has hit a limit."""

ATTACKS: tuple[Attack, ...] = (
    *(
        Attack(f"across_{name}", AttackClass.ACROSS_RUNS, program, OK_OR_ERROR, after=after)
        for name, (program, after) in _PAIRS.items()
    ),
    Attack(
        "across_file_lock_beside",
        AttackClass.ACROSS_RUNS,
        """
# A lock that another caller holds on a file that all runs can open.
import fcntl
for _ in range(10):
    try:
        with open(os.__file__, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        win("waits for others, and others for it")
        break
    except OSError:
        pass
    time.sleep(0.05)
""",
        beside="import fcntl, os, time\nf = open(os.__file__, 'rb')\nfcntl.flock(f, fcntl.LOCK_EX)\ntime.sleep(1.5)",
    ),
    Attack(
        "across_half_read_request",
        AttackClass.ACROSS_RUNS,
        "print(1)",
        ANY_BUT_FAULT,
        replace(SMALL, cpu_seconds=0.001),
        after="print(2)",
        stdin=MUCH_INPUT,
    ),
)
