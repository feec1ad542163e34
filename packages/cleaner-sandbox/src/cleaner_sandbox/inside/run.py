"""The run's own process, from its fork to its end.

First it shuts itself in, so that all of this is done before a call comes; then it waits for the one request it will
ever read. Nothing here decides a verdict: after user code has started, this process is the user's.
"""

from __future__ import annotations
import __future__

import ast
import atexit
import builtins
import contextlib
import fcntl
import functools
import gc
import linecache
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from types import CodeType, ModuleType
from typing import Any, NoReturn

from cleaner_sandbox.inside import cells, display, kernel, report, shell, wire
from cleaner_sandbox.inside.display import FIGURES

REQUEST_FD = 4
READY_FD = 5
MEGABYTE = 1 << 20
SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
ZYGOTE_SEED = 0
"""What zygotes seed the generators with, so that most runs needn't."""
FUTURE_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
leave_session = os.setsid
"""Begin a session of one's own, which has a share of the CPUs of its own and not the zygote's priority.
`stay_in_session` hides it from programs."""


def main(settings: dict[str, Any], files: list[int]) -> NoReturn:
    """Be one run. `files`: its stdin, stdout, stderr and report, where it reads its request, where it says it is ready.

    Whatever fails before it is ready is the slot's to answer for: the slot goes down, and no call was lost.
    """
    shut_in(settings, files)
    report.own_report.note()
    os.write(READY_FD, b"r")
    os.close(READY_FD)
    try:
        request = wire.unpack(REQUEST_FD)
        if request is None:
            os._exit(0)
        os.close(REQUEST_FD)
        try:
            code, echo, is_shell, display_bytes, limits, seed_, *given = request
            prepare(settings, limits, seed_, *given)
        except OSError as error:  # files that don't fit
            tell(error, (report.FILE_NAME,))
            os._exit(1)
        if is_shell:
            os.close(report.REPORT_FD)  # a shell has exceptions of no kind to describe
            shell.become(code, seed_)
        report.own_report.display_bytes = display_bytes
        module: ModuleType = settings["main"]
        finish(execute(code, echo, module), module)
    finally:
        os._exit(1)  # this is a fork of the supervisor: nothing that is raised here may reach the supervisor's own code


def shut_in(settings: dict[str, Any], files: list[int]) -> None:
    """Give up everything that a run must not have."""
    layers: frozenset[str] = settings["layers"]
    leave_session()
    os.nice(settings["nice"])
    uid = settings["run_uid"]
    if "mount" in layers:
        for path in settings["folders"]:
            os.mkdir(path, 0o700)
            if "uid" in layers:
                os.chown(path, uid, uid)
    if "uid" in layers:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # or the supervisor may not look at its memory
    elif "seccomp" in layers and not settings["own_user"]:
        kernel.drop_capabilities()
    if "cgroup" in layers:
        be_killed_first(settings["proc"])
    os.chdir(settings["work"])
    sys.path.insert(0, settings["work"])  # not in the supervisor, which would import what runs have left there
    if "pid" not in layers:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if "landlock" in layers:
        settings["landlock"].enter()
    if settings["approvals"] is not None:
        settings["approvals"].ask()
    # The slot keeps these above what they become here, so none is overwritten before it is copied.
    for target, descriptor in enumerate(files):
        os.dup2(descriptor, target)
    kernel.close_from(len(files))
    if "seccomp" in layers:
        if settings["own_pid_only"]:
            kernel.own_process_only(settings["own_pid_only"], os.getpid()).install()
        settings["filter"].install()


def be_killed_first(proc: int) -> None:
    """When the memory of the slot's cgroup runs out, the run is to be killed, and never its supervisor."""
    descriptor = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=proc)
    os.write(descriptor, b"1000")
    os.close(descriptor)


def prepare(
    settings: dict[str, Any], limits: tuple[Any, ...], seed_: int, stdin: bytes | None, files: dict[str, bytes] | None
) -> None:
    """Apply what only the request says: its stdin, limits, files and seed."""
    give_stdin(0, stdin)  # not the program's doing, so not within its limits
    if "rlimits" in settings["layers"]:
        cpu_seconds, memory, disk, processes, open_files = limits
        most = [] if settings["asked"] else [(resource.RLIMIT_NPROC, processes)]  # or the kernel counts neighbours, too
        for kind, value in (
            *most,
            # The kernel counts whole ticks here, which on a busy machine come to more than the time that was used. So
            # the supervisor, which counts that, has to be first; this is for when it gets no CPU itself.
            (resource.RLIMIT_CPU, 2 * int(cpu_seconds) + 2),
            (resource.RLIMIT_DATA, settings["base_data"] + memory),
            # Shared mappings count only here; so do the address ranges that threads reserve and don't use.
            (resource.RLIMIT_AS, settings["base_size"] + memory + 512 * MEGABYTE),
            (resource.RLIMIT_FSIZE, disk),
            (resource.RLIMIT_NOFILE, open_files),
            (resource.RLIMIT_SIGPENDING, 4 * processes),  # timers count as pending signals
        ):
            resource.setrlimit(kind, (value, value))
    if files:
        put_files(files, settings["work"])
    if seed_ != ZYGOTE_SEED:
        seed(seed_)
    gc.enable()


def give_stdin(descriptor: int, data: bytes | None) -> None:
    """Fill standard input, for good: nothing can be stored there later."""
    if data:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)


def put_files(files: dict[str, bytes], work: str) -> None:
    """Write the request's files into the working folder, in which a session's cells need not be any more."""
    for name, data in files.items():
        path = f"{work}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def seed(value: int) -> None:
    """Seed `random`, and numpy's global generator where numpy is loaded."""
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % 2**32)


def main_module() -> ModuleType:
    """A fresh `__main__`, with nothing in it that a script wouldn't have."""
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __file__=report.FILE_NAME)
    sys.modules["__main__"] = module
    sys.argv = [report.FILE_NAME]
    return module


def stay_in_session() -> None:
    """Have Python's own functions make a process group where a program asks for a session.

    The kernel may share out the CPU by session (`sched_autogroup`): with one for each of its processes, a run would get
    as many shares. So the filter answers `setsid` with success and does nothing. What programs want of it is nearly
    always a group that can be signalled as a whole.
    """
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def _execute_child(self: Any, *arguments: Any) -> Any:
        *others, session, group = arguments
        return start(self, *others, False, 0 if session else group)

    _execute_child.__code__ = _execute_child.__code__.replace(co_filename="<sandbox>")  # tracebacks show it
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    os.setsid = functools.partial(os.setpgid, 0, 0)


def execute(
    source: str,
    echo: bool,
    module: ModuleType,
    name: str = report.FILE_NAME,
    names: tuple[str, ...] = (report.FILE_NAME,),
    is_cell: bool = False,
) -> int:
    """Run the program to its end or its exception; the exit code it asks for. `names`: all that user code is called."""
    source = source.removeprefix("\ufeff")
    linecache.cache[name] = (lambda: source,)  # split into lines only if somebody asks
    namespace = module.__dict__
    try:
        codes = compiled(source, echo, name, is_cell)
        if is_cell and cells.waits(codes):
            cells.run_waiting(codes, namespace)
        else:
            for code in codes:
                exec(code, namespace)
    except SystemExit as exit_:
        return exit_code(exit_)
    except BaseException as error:
        tell(error, names)
        return 1
    finally:
        if FIGURES in sys.modules:
            display.end()
    return 0


def compiled(source: str, echo: bool, name: str, is_cell: bool) -> list[CodeType]:
    """The program, or its statements and then its last expression, whose value is displayed."""
    if not echo and not is_cell:
        return [compile(source, name, "exec", dont_inherit=True)]
    tree = cells.parsed(source, name) if is_cell else ast.parse(source, name)
    flags = cells.FLAGS if is_cell else 0
    if not echo or not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return [compile(tree, name, "exec", flags, dont_inherit=True)]
    last = ast.Interactive([tree.body.pop()])
    body = compile(tree, name, "exec", flags, dont_inherit=True)
    return [body, compile(last, name, "single", flags | body.co_flags & FUTURE_FLAGS, dont_inherit=True)]


def exit_code(exit_: SystemExit) -> int:
    """What `sys.exit` asked for, as the interpreter reads it."""
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code & 0xFF if -(2**63) <= exit_.code < 2**63 else 255
    with contextlib.suppress(BaseException):  # of the program's own stderr, or of what it exits with
        sys.stderr.write(f"{exit_.code}\n")
    return 1


def tell(error: BaseException, names: tuple[str, ...]) -> None:
    """Give an uncaught exception to the program's own hook, and describe it to the node or, if that fails, on stderr.

    Raises nothing, whatever the program has made of its hook, its descriptors and the modules used here.
    """
    with contextlib.suppress(BaseException):
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, error.__traceback__)
    with contextlib.suppress(BaseException):
        description = report.describe(error, names)
        try:
            report.own_report.write(description)
        except BaseException:
            sys.stderr.write(description["traceback"])


def finish(code: int, module: ModuleType) -> NoReturn:
    """End as the interpreter would, without taking apart the modules that were preloaded."""
    try:
        if threading.active_count() > 1:
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        module.__dict__.clear()  # files that were left open are closed, and so written out
        flush_outputs()
    except BaseException:
        os._exit(code or 1)
    os._exit(code)


def flush_outputs() -> None:
    """Write out what was printed; as at an interpreter's end, a stream that the program has taken away isn't missed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def restore_signals() -> None:
    """The dispositions of a fresh interpreter; the zygote has its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
