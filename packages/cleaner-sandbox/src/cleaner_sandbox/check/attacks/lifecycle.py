"""Attacks on the life of a run: outliving the deadline, leaving something behind, killing those who watch."""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import CRASHED, ERROR, OK, SMALL, SYSCALL, TIMEOUT, Attack, AttackClass
from cleaner_sandbox.protocol.results import RunStatus

_OUTLIVE = {
    "ignore_signals": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    time.sleep(1)
""",
    "alarm_off": """
# X3: a deadline kept by the program's own alarm ends with `alarm(0)`.
import signal
signal.alarm(0)
for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
    signal.setitimer(timer, 0)
time.sleep(60)
""",
    "swallow_everything": """
while True:
    try:
        while True: pass
    except BaseException:
        pass
""",
    "block_signals": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(60)
""",
    "signal_storm": """
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while True:
    try:
        time.sleep(0.001)
    except BaseException:
        pass
""",
    "hang_at_exit": "import atexit\natexit.register(time.sleep, 60)",
    "thread_at_exit": "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "destructor_at_exit": """
class Sticky:
    def __del__(self, sleep=time.sleep):
        sleep(60)
keep = Sticky()
""",
    "stop_itself": "import signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "terminal_stop": "import signal\nos.kill(os.getpid(), signal.SIGTSTP)\ntime.sleep(60)",
}

_LEAVE = {
    "child_keeps_pipe": """
# X7: who waits for the end of the output waits for the child.
try:
    if os.fork() == 0:
        os.setsid()
        time.sleep(5)
        os._exit(0)
except OSError:
    pass
""",
    "daemon": """
# X7: forked twice, in a session of its own, without a descriptor; it says that it lives, later.
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 64)
        time.sleep(5)
        os._exit(0)
except OSError:
    pass
""",
    "daemon_without_parent_signal": SYSCALL
    + """
syscall(157, 1, 0, 0, 0, 0)  # prctl(PR_SET_PDEATHSIG, 0)
syscall(157, 36, 1, 0, 0, 0)  # prctl(PR_SET_CHILD_SUBREAPER)
try:
    if os.fork() == 0:
        syscall(157, 1, 0, 0, 0, 0)
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(5)
        os._exit(0)
except OSError:
    pass
os._exit(0)
""",
    "spinning_orphan": """
try:
    if os.fork() == 0:
        end = time.monotonic() + 4
        while time.monotonic() < end: pass
        os._exit(0)
except OSError:
    pass
""",
    "fork_in_exit_handler": """
import atexit
def spawn():
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(5)
            os._exit(0)
    except OSError:
        pass
atexit.register(spawn)
""",
    "fork_on_sigterm": """
# Breeds when it is asked to go.
import signal
def breed(*_):
    try:
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(5)
            os._exit(0)
    except OSError:
        pass
for name in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP):
    signal.signal(name, breed)
while True: pass
""",
    "exec_daemon": """
import subprocess
try:
    subprocess.Popen(["/bin/sleep", "5"], start_new_session=True)
except OSError:
    pass
""",
}

_KILL = {
    "kill_everyone": """
try:
    os.kill(-1, 0)
    win("reaches everybody") if outside() else os.kill(-1, 9)
except OSError:
    pass
""",
    "kill_parent": """
# X9. Where the parent can't be seen its number is 0, which would be the own group.
import signal
if os.getppid() > 0:
    try:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(0.2)
    except OSError:
        pass
""",
    "kill_all_seen": """
if outside():
    win("reaches the processes of others")
    sys.exit()
for pid in seen():
    try:
        os.kill(pid, 9)
    except OSError:
        pass
time.sleep(0.2)
""",
    "signal_node": """
import signal
for pid in (@VICTIM@, @NODE@):
    for number in (signal.SIGCONT, signal.SIGURG):  # which change nothing
        try:
            os.kill(pid, number)
            win("signals reach %d" % pid)
        except OSError:
            pass
""",
    "stop_everyone": """
import signal
if outside():
    win("reaches the processes of others")
    sys.exit()
for pid in {os.getppid(), *seen()} - {0}:
    try:
        os.kill(pid, signal.SIGSTOP)
    except OSError:
        pass
""",
    "kill_by_pidfd": SYSCALL
    + """
for pid in {os.getppid(), @VICTIM@} - {0}:
    descriptor, error = syscall(434, pid, 0)
    if descriptor >= 0 and syscall(424, descriptor, 0, 0, 0)[0] == 0:
        win("may signal %d" % pid)
""",
    "signal_by_owner": """
# Not a kill: the kernel sends the signal, to whomever a descriptor's owner is set.
import fcntl, signal
read, write = os.pipe()
try:
    fcntl.fcntl(read, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(read, fcntl.F_SETOWN, @VICTIM@)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(write, b"x")
except OSError:
    pass
""",
    "limit_parent": """
import resource
for pid in {os.getppid(), @NODE@, @VICTIM@} - {0}:
    try:
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
        win("sets the limits of %d" % pid)
    except OSError:
        pass
""",
    "deprioritize_parent": """
for pid in {os.getppid(), @NODE@, @VICTIM@} - {0}:
    try:
        os.sched_setaffinity(pid, os.sched_getaffinity(pid))
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
        win("schedules %d" % pid)
    except OSError:
        pass
""",
}

ATTACKS: tuple[Attack, ...] = (
    *(Attack(name, AttackClass.LIFECYCLE, text, TIMEOUT, wall=5) for name, text in _OUTLIVE.items()),
    *(
        Attack(name, AttackClass.LIFECYCLE, text, TIMEOUT if name == "fork_on_sigterm" else OK)
        for name, text in _LEAVE.items()
    ),
    *(Attack(name, AttackClass.LIFECYCLE, text, wall=4) for name, text in _KILL.items()),
    Attack(
        "traced_stop",
        AttackClass.LIFECYCLE,
        SYSCALL + "import signal\nsyscall(101, 0, 0, 0, 0)\nos.kill(os.getpid(), signal.SIGUSR1)\ntime.sleep(60)",
        TIMEOUT | CRASHED,
    ),
    Attack(
        "stretch_wall_clock",
        AttackClass.LIFECYCLE,
        """
# Time spent waiting for a CPU isn't counted: make many threads wait for one another, then sleep on what that earned.
import hashlib, threading
end = time.process_time() + 0.7
def burn():
    while time.process_time() < end:
        hashlib.sha256(bytes(1 << 16)).digest()
threading.stack_size(1 << 18)
threads = [threading.Thread(target=burn) for _ in range(14)]
for thread in threads: thread.start()
for thread in threads: thread.join()
time.sleep(60)
""",
        TIMEOUT,
        limits=replace(SMALL, wall_seconds=0.5),
        wall=3,
    ),
    Attack("kill_own_group", AttackClass.LIFECYCLE, "os.killpg(0, 9)\ntime.sleep(9)", CRASHED | ERROR, wall=4),
    Attack(
        "exit_at_deadline",
        AttackClass.LIFECYCLE,
        "time.sleep(0.5 - 0.005)\nos._exit(0)",
        frozenset({RunStatus.OK, RunStatus.TIMEOUT}),
        limits=replace(SMALL, wall_seconds=0.5),
    ),
    Attack(
        "caller_gone",
        AttackClass.LIFECYCLE,
        "try:\n    os.fork()\nexcept OSError:\n    pass\nwhile True: pass",
        cancel_after=0.3,
        limits=replace(SMALL, cpu_seconds=8, wall_seconds=8),
    ),
)
