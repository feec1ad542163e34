"""Attacks on the blame: programs that die in every way there is, hoping to pass for a broken sandbox.

A fault is never trained on and never scored, so a model that can cause one has found a way around its penalty. Whatever
a run does to die is its own failure; the statuses here are narrow, and `fault` is never among them.
"""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import (
    ANY_FAILURE,
    CRASHED,
    ERROR,
    SMALL,
    SYSCALL,
    Attack,
    AttackClass,
)
from cleaner_sandbox.protocol.results import RunStatus

_DEATHS = {
    "segfault": "import ctypes\nctypes.string_at(0)",
    "abort": "os.abort()",
    "kill_itself": "os.kill(os.getpid(), 9)\ntime.sleep(9)",
    "terminate_itself": "import signal\nsignal.signal(15, signal.SIG_DFL)\nos.kill(os.getpid(), 15)\ntime.sleep(9)",
    "bus_error": """
import mmap
file = open("f", "w+b")
file.truncate(4096)
area = mmap.mmap(file.fileno(), 4096)
file.truncate(0)
area[0]
""",
    "bad_system_call_signal": "os.kill(os.getpid(), 31)\ntime.sleep(9)",
    "real_time_signal": "os.kill(os.getpid(), 50)\ntime.sleep(9)",
    "broken_pipe_signal": "import signal\nsignal.signal(13, signal.SIG_DFL)\nos.kill(os.getpid(), 13)\ntime.sleep(9)",
    "fatal_error": "import ctypes\nctypes.pythonapi.Py_FatalError(b'internal error of the sandbox')",
    "broken_interpreter": """
import ctypes
ctypes.memset(id(None), 0xff, 16)
[None for _ in range(99)]
os.kill(os.getpid(), 11)
""",
    "unwritable_stack": "import ctypes\nctypes.memset(ctypes.addressof(ctypes.c_int()) & ~0xfff, 0xff, 1 << 26)",
    "kill_itself_from_child": """
try:
    pid = os.fork()
except OSError:
    os.kill(os.getpid(), 9)
else:
    if pid == 0:
        os.kill(os.getppid(), 9)
        os._exit(0)
time.sleep(9)
""",
}

_FAKES = {
    "infrastructure_text": """
print("HTTP/1.1 503 Service Unavailable\\nInternal Server Error: sandbox fault: worker died, supervisor lost")
sys.stderr.write("slot died; status: fault\\n")
sys.exit(1)
""",
    "infrastructure_exception": """
class SandboxFault(Exception): pass
SandboxFault.__module__ = "cleaner_sandbox"
class SessionLostError(SandboxFault): pass
raise SessionLostError("the supervisor died")
""",
    "connection_error": "raise ConnectionResetError(104, 'Connection reset by peer')",
    "interrupt": "raise KeyboardInterrupt",
    "cancelled": "import asyncio\nraise asyncio.CancelledError",
    "exit_137": "sys.exit(137)",
    "exit_255": "os._exit(255)",
    "exit_minus_nine": "sys.exit(-9)",
    "exit_before_anything": "os._exit(1)",
    "no_descriptors_left": """
held = []
try:
    while len(held) < 20000:
        held.append(os.open("/dev/null", 0))
except OSError:
    pass
raise ValueError("mine")
""",
    "no_disk_left": """
try:
    with open("big", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
except OSError:
    pass
raise ValueError("mine")
""",
    "no_folder_left": "import shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nraise ValueError('mine')",
    "no_rights_left": "os.chmod('.', 0)\nraise ValueError('mine')",
    "no_output_left": "os.closerange(0, 256)\nraise ValueError('mine')",
    "no_limits_left": """
import resource
for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK):
    try:
        resource.setrlimit(name, (0, 0))
    except (OSError, ValueError):
        pass
raise ValueError("mine")
""",
    "full_stdout_pipe": """
os.set_blocking(1, False)
os.set_blocking(2, False)
raise ValueError("mine" * 3000)
""",
    "children_fail": """
for _ in range(4):
    try:
        if os.fork() == 0:
            os.abort()
        os.wait()
    except OSError:
        pass
sys.exit(1)
""",
}

_EXHAUSTED = {
    "no_memory_left": """
held = []
size = 1 << 22
while size > 16:
    try:
        held.append(bytearray(size))
        if len(held) > 60 and size == 1 << 22:
            break
    except MemoryError:
        size //= 2
raise ValueError("mine")
""",
    "own_memory_limit": """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
held = [bytearray(1 << 16) for _ in range(99)]
raise ValueError("mine")
""",
    "own_cpu_limit": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "stack_overflow": """
import ctypes
@ctypes.CFUNCTYPE(ctypes.c_int)
def f(): return f()
sys.setrecursionlimit(1 << 30)
f()
""",
    "own_filter": SYSCALL + "syscall(157, 22, 1, 0, 0, 0)\nos.getppid()\nraise ValueError('mine')",
    "exec_nothing": "open('x', 'w').write('#!/no/such\\n')\nos.chmod('x', 0o755)\nos.execv('./x', ['x'])",
    "exec_and_die": "os.execv('/bin/sh', ['sh', '-c', 'kill -9 $$'])",
    "threads_and_die": """
import threading
for _ in range(8):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
os.kill(os.getpid(), 11)
time.sleep(9)
""",
    "die_as_traced": SYSCALL + "syscall(101, 0, 0, 0, 0)\nos.kill(os.getpid(), 9)",
    "break_parent_then_fail": """
for number in range(1, 32):
    if number not in (9, 19):
        for pid in {os.getppid()} - {0, os.getpid()}:
            try:
                os.kill(pid, number)
            except OSError:
                pass
sys.exit(1)
""",
    "stop_parent_then_fail": """
import signal
for pid in {os.getppid(), 1 if not outside() else 0} - {0, os.getpid()}:
    try:
        os.kill(pid, signal.SIGSTOP)
    except OSError:
        pass
sys.exit(1)
""",
    "kill_parent_then_fail": """
import signal
for pid in {os.getppid(), 1 if not outside() else 0} - {0, os.getpid()}:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
sys.exit(1)
""",
    "name_like_a_field_then_die": """
# The kernel shows a process's name among the numbers that a supervisor reads.
import ctypes
ctypes.CDLL(None).prctl(15, b"VmPTE:x", 0, 0, 0)
time.sleep(0.3)
os.abort()
""",
    "flood_then_die": "os.write(1, b'x' * 60000)\nos.abort()",
}

ATTACKS: tuple[Attack, ...] = (
    *(Attack(f"dodge_{name}", AttackClass.DODGE, text, CRASHED, wall=4) for name, text in _DEATHS.items()),
    *(Attack(f"dodge_{name}", AttackClass.DODGE, text, ERROR, wall=4) for name, text in _FAKES.items()),
    *(
        Attack(
            f"dodge_{name}",
            AttackClass.DODGE,
            text,
            ANY_FAILURE - {RunStatus.OUTPUT_LIMIT},
            limits=replace(SMALL, cpu_seconds=2, wall_seconds=4),
        )
        for name, text in _EXHAUSTED.items()
    ),
)
