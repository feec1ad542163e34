"""Programs that nobody would write, for `sandbox_fuzz`: fragments of calls, writes, signals, exits and junk.

Where a program's end doesn't depend on anything else its status is known, and drawn together with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from cleaner_sandbox import Limits, RunRequest, RunStatus

LIMITS = Limits(
    cpu_seconds=0.4,
    wall_seconds=0.6,
    memory_mb=64,
    processes=16,
    disk_mb=4,
    files=32,
    open_files=64,
    output_bytes=32_768,
)
ANY = frozenset(RunStatus) - {RunStatus.FAULT, RunStatus.MALFORMED}

PRELUDE = """\
import ctypes, gc, os, resource, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return error
"""

_OS = [
    "access",
    "chdir",
    "chmod",
    "close",
    "closerange",
    "copy_file_range",
    "ctermid",
    "dup",
    "dup2",
    "eventfd",
    "fchdir",
    "fchmod",
    "fdatasync",
    "fork",
    "fpathconf",
    "fstat",
    "fstatvfs",
    "fsync",
    "ftruncate",
    "get_blocking",
    "get_inheritable",
    "get_terminal_size",
    "getcwd",
    "getenv",
    "getgroups",
    "getloadavg",
    "getpgid",
    "getpriority",
    "getrandom",
    "getsid",
    "isatty",
    "kill",
    "killpg",
    "link",
    "listdir",
    "lockf",
    "login_tty",
    "lseek",
    "lstat",
    "major",
    "makedirs",
    "memfd_create",
    "mkdir",
    "mkfifo",
    "mknod",
    "nice",
    "open",
    "openpty",
    "pathconf",
    "pidfd_open",
    "pipe",
    "pipe2",
    "posix_fadvise",
    "posix_fallocate",
    "posix_spawn",
    "pread",
    "preadv",
    "putenv",
    "pwrite",
    "pwritev",
    "read",
    "readlink",
    "readv",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "scandir",
    "sched_getaffinity",
    "sched_setaffinity",
    "sched_setscheduler",
    "sendfile",
    "set_blocking",
    "set_inheritable",
    "setgid",
    "setpgid",
    "setpriority",
    "setregid",
    "setresuid",
    "setsid",
    "setuid",
    "setxattr",
    "splice",
    "stat",
    "statvfs",
    "symlink",
    "sync",
    "sysconf",
    "tcgetpgrp",
    "tcsetpgrp",
    "truncate",
    "ttyname",
    "umask",
    "unlink",
    "unsetenv",
    "urandom",
    "utime",
    "wait",
    "wait3",
    "waitid",
    "waitpid",
    "walk",
    "write",
    "writev",
]

_numbers = st.one_of(
    st.integers(-3, 12), st.sampled_from([64, 255, 256, 4096, 2**31 - 1, 2**31, 2**32 + 1, 2**63 - 1, -(2**63), 2**64])
)
_paths = st.sampled_from(
    ["", ".", "..", "/", "x", "x/y", "/tmp/x", "/dev/null", "/proc/self/mem", "/box", "\0", "a" * 300]
)
_values = st.one_of(
    _numbers.map(repr),
    _paths.map(repr),
    st.binary(max_size=12).map(repr),
    st.text(max_size=8).map(repr),
    st.floats().map(lambda number: f"float({str(number)!r})"),
    st.sampled_from(
        ["None", "True", "os.pipe()", "[b'x', b'y']", "bytearray(9)", "lambda *a: 1 / 0", "object()", "sys.stdout"]
    ),
)
_arguments = st.lists(_values, max_size=4).map(", ".join)
_signals = st.integers(1, 64)

_calls = st.builds("attempt(os.{}, {})".format, st.sampled_from(_OS), _arguments)
_syscalls = st.builds(
    "attempt(libc.syscall, {}, {})".format,
    st.integers(0, 470),
    st.lists(
        st.one_of(
            st.integers(-3, 20).map(lambda number: f"ctypes.c_long({number})"),
            st.sampled_from(["ctypes.c_long(-1)", "ctypes.create_string_buffer(64)", "b'x'", "ctypes.c_long(1 << 40)"]),
        ),
        max_size=6,
    ).map(", ".join),
)
_writes = st.builds(
    "for n in range({}, {}): attempt(os.write, n, {!r} * {})".format,
    st.integers(0, 6),
    st.integers(0, 70),
    st.binary(min_size=1, max_size=24),
    st.sampled_from([1, 1, 1, 100, 5000]),
)
_signalling = st.one_of(
    st.builds(
        "attempt(signal.signal, {}, {})".format,
        _signals,
        st.sampled_from(["signal.SIG_IGN", "signal.SIG_DFL", "print"]),
    ),
    st.builds("attempt(os.kill, os.getpid(), {})".format, _signals),
    st.builds("attempt(os.kill, {}, {})".format, st.sampled_from(["0", "1", "-1", "os.getppid()"]), _signals),
    st.builds("attempt(signal.setitimer, {}, {})".format, st.integers(0, 2), st.sampled_from(["0", "0.01", "0.3"])),
    st.builds("attempt(signal.pthread_sigmask, signal.SIG_BLOCK, [{}])".format, _signals),
)
_limiting = st.builds("attempt(resource.setrlimit, {}, ({}, {}))".format, st.integers(0, 15), _numbers, _numbers)
_using = st.sampled_from(
    [
        "held = attempt(bytearray, 1 << 22)",
        "held = [attempt(bytearray, 1 << 22) for _ in range(20)]",
        "attempt(os.fork)",
        "attempt(threading.Thread(target=time.sleep, args=(0.05,)).start)",
        "attempt(threading.Thread(target=time.sleep, args=(9,), daemon=True).start)",
        "while True: pass",
        "time.sleep(9)",
        "def f(): f()\nf()",
        "os.closerange(0, 64)",
        "sys.stdout = None",
        "sys.modules.clear()",
        "vars(__builtins__).clear()",
        "gc.collect(); gc.freeze()",
        "sys.setrecursionlimit(1 << 30)",
        "sys.settrace(lambda *a: 1 / 0)",
        "print('x' * 9000, flush=True)",
        "print('x' * 90000)",
        "open('x', 'w').write('y' * 100000)",
        "[open('f%d' % n, 'w') for n in range(99)]",
        "ctypes.string_at(0)",
        "ctypes.memset(id(None), 7, 8)",
        "__import__('atexit').register(time.sleep, 9)",
        "__import__('atexit').register(os._exit, 3)",
        "sys.excepthook = lambda *a: os._exit(0)",
    ]
)
_statements = st.one_of(_calls, _calls, _syscalls, _writes, _signalling, _limiting, _using)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request, and the statuses that are right for it."""

    request: RunRequest
    right: frozenset[RunStatus]


def _wrapped(statement: str, how: int) -> str:
    inner = "\n".join("    " + line for line in statement.splitlines())
    return (
        statement,
        statement,
        f"try:\n{inner}\nexcept BaseException: pass",
        f"def work():\n{inner}\nattempt(threading.Thread(target=work).start)",
        f"if attempt(os.fork) == 0:\n{inner}",
        f"class C:\n    def __del__(self):\n{inner.replace('    ', '        ', 1)}\nC()",
    )[how]


_exits = st.one_of(
    st.integers(-300, 300).map(lambda code: (f"os._exit({code})", RunStatus.ERROR if code & 0xFF else RunStatus.OK)),
    st.integers(-300, 300).map(lambda code: (f"sys.exit({code})", RunStatus.ERROR if code & 0xFF else RunStatus.OK)),
    st.text(min_size=1, max_size=20).map(lambda text: (f"sys.exit({text!r})", RunStatus.ERROR)),
    st.sampled_from(
        ["ValueError", "KeyboardInterrupt", "GeneratorExit", "MemoryError", "RecursionError", "BaseException"]
    ).map(lambda name: (f"raise {name}", RunStatus.ERROR)),
    st.sampled_from([3, 4, 6, 7, 8, 9, 11, 31]).map(lambda n: (f"os.kill(os.getpid(), {n})", RunStatus.CRASHED)),
    st.just(("pass", RunStatus.OK)),
    st.just(("while True: pass", RunStatus.TIMEOUT)),
    st.just(("os.write(1, b'x' * 99999)", RunStatus.OUTPUT_LIMIT)),
)


@st.composite
def requests(draw: st.DrawFn) -> Drawn:
    """A program with whatever goes along with it."""
    kind = draw(st.sampled_from(["fragments", "fragments", "fragments", "fragments", "ending", "text", "bytes"]))
    right = ANY
    if kind == "ending":
        ending, status = draw(_exits)
        code, right = PRELUDE + ending, frozenset({status})
    elif kind == "text":
        code = draw(st.text(max_size=200))
    elif kind == "bytes":
        code = draw(st.binary(max_size=200)).decode(draw(st.sampled_from(["latin-1", "utf-8"])), "surrogateescape")
    else:
        statements = draw(st.lists(st.tuples(_statements, st.integers(0, 5)), min_size=1, max_size=6))
        code = PRELUDE + "\n".join(_wrapped(statement, how) for statement, how in statements)
    if kind == "ending":
        return Drawn(RunRequest(code, limits=LIMITS), right)
    names = st.one_of(st.sampled_from(["x", "x/y", "f0"]), st.sampled_from(["x", "out"]), _paths, st.text(max_size=8))
    few = st.integers(0, 9).map(lambda number: number == 0)
    request = RunRequest(
        code,
        stdin=draw(st.one_of(st.none(), st.text(max_size=20), st.binary(max_size=20))),
        limits=LIMITS,
        echo_last_expression=draw(st.booleans()),
        seed=draw(st.one_of(st.just(0), st.integers())),
        files=draw(st.dictionaries(names, st.binary(max_size=20), max_size=2)) if draw(few) else {},
        fetch=tuple(draw(st.lists(names, max_size=2))) if draw(few) else (),
    )
    return Drawn(request, right)
