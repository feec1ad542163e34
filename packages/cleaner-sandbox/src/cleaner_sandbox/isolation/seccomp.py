"""The system calls that a run may make: a list of what is allowed; all else answers ENOSYS.

Built once, by libseccomp, and exported. The kernel takes longer to take in such a list than to do all else that shuts a
run in. So a supervisor enters a list that also has what it needs itself, and its runs inherit it; each run then only
enters a short filter that takes those calls away.
"""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from typing import Any

from cleaner_sandbox.inside import kernel

_ALLOWED = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close fstat stat lstat
newfstatat statx statfs fstatfs creat access faccessat faccessat2 dup dup2 dup3 flock fsync fdatasync sync_file_range
ftruncate fallocate getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir
link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat umask utime utimes utimensat
futimesat copy_file_range pipe pipe2
mprotect munmap mremap msync mincore brk membarrier
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigqueueinfo sigaltstack pause
kill tgkill alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getrusage sysinfo uname
getpid getppid gettid getpgid getpgrp getsid setpgid getuid geteuid getgid getegid getresuid getresgid getgroups
setresuid setresgid
getrlimit setrlimit getpriority getcpu capget
sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
futex set_robust_list get_robust_list set_tid_address rseq arch_prctl restart_syscall getrandom
exit exit_group wait4 waitid
recvfrom recvmsg recvmmsg shutdown getsockname getpeername
"""
"""Some of these exist on some machines only; libseccomp leaves out what the machine doesn't have. Not here, though
harmless to look at: `sendmsg`, which puts descriptors in flight that count for no limit; `memfd_create` and System
V shared memory, which hold memory that no process maps; `splice`, `tee` and `sendfile`, which put whole pages into a
socket that counts the bytes; `inotify_init1`, whose unread events are the kernel's to keep, and which shows who opens
the files that runs share; `openat2`, whose flags no filter can see. `mmap`, `madvise` and `fadvise64` have rules
of their own. `setresuid` is here because `make` starts programs with the ids that it has; a run has no right to others.
docs/internals/kernel-memory.md goes through the list, and says what bounds the memory behind each."""

_EXTENDED_ATTRIBUTES = """
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr lremovexattr
fremovexattr
"""
"""Answered as a file system without them does: programs that list or copy files take that, and no ENOSYS, as usual."""

_OWNERS = "chown fchown fchownat lchown"
"""Answered as for any user without rights: programs that copy files with their owners take that as usual."""

PROCESS_CALLS = ("fork", "vfork", "execve", "execveat")
UNIX_SOCKET_CALLS = ("bind", "listen", "accept", "accept4", "connect", "sendto")
SIGNAL_CALLS = ("kill", "tgkill", "rt_sigqueueinfo")
"""Those on the list that name another process to signal, all of them first."""

ASKED_CALLS = ("clone", "chmod", "fchmod", "fchmodat", "utimensat")
OLD_TIMES_CALLS = ("utime", "utimes", "futimesat")
"""What `utimensat` has replaced in every C library."""

CLONE_VM, CLONE_FS, CLONE_FILES = 0x00000100, 0x00000200, 0x00000400
CLONE_VFORK, CLONE_PARENT, CLONE_THREAD = 0x00004000, 0x00008000, 0x00010000
CLONE_NAMESPACES = 0x7E020000
CLOSE_RANGE_UNSHARE = 2
MAP_SHARED = 0x01
"""Also a bit of `MAP_SHARED_VALIDATE`, and of no private kind."""
MAP_ANONYMOUS = 0x20
MAP_HUGETLB = 0x40000
ADVICE = (*range(20), *range(22, 25), 102, 103)
"""On memory, but for three: `MADV_COLD` and `MADV_PAGEOUT` push it out to the machine's swap, on purpose, and
`MADV_COLLAPSE` makes huge pages of small ones, and of those that aren't there."""
REFUSED_ADVICE = (20, 21, 25)
_SUPERVISORS = """
mount umount2 chown fchown fchownat landlock_restrict_self capset memfd_create pidfd_open
pidfd_send_signal sendmsg seccomp setpriority
"""
SUPERVISOR_PRCTLS = (1, 4, 22)
"""Death with the parent, whether others may look at its memory, seccomp."""
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TIOCGWINSZ (`isatty`), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
SUPERVISOR_IOCTLS = (kernel.SECCOMP_RECEIVE, kernel.SECCOMP_SEND)
PRCTLS = (15, 16, 3, 23, 0x53564D41)
"""Names of threads, reading two flags, naming a mapping."""
FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 1030, 1032, 1033, 1034)
"""Copies, flags, locks, reading the owner, reading the sizes of pipes, seals. Not setting the owner, or the signal that
the owner gets: that is a `kill` by other means. Not the locks of open files (36 to 38), which the kernel lists as
nobody's, so that none could be counted."""
FADV_DONTNEED = 4
"""Empties the cache of files that all runs share. The others are advice on how a file is read."""
SOCKET_OPTIONS = (1, 2, 6, 9, 10, 13, 15, 16, 18, 20, 21)
"""Debugging (which needs rights; TCP's options begin with this number, too), reuse of addresses and ports, broadcast,
keeping alive, urgent data, lingering, credentials, low-water mark, time-outs. Not the sizes of buffers, which count for
no limit on memory, and no filters, which are programs for the kernel."""
READABLE_SOCKET_OPTIONS = (*range(1, 22), 30, 31, 38, 39, 66, 67)
"""Those that tell of a socket itself. Not its cookie or its namespace's (57, 71), which the kernel counts up for all of
the machine."""
F_SETPIPE_SZ, F_ADD_SEALS = 1031, 1033
TRUNCATION_ABI = 3
"""The first version of landlock that keeps a run from emptying files which it may not write."""


def build(processes: bool, supervisor: bool = False) -> bytes:
    """The list as a BPF program. `processes`: whether a run may start any (tier 2), or threads only. `supervisor`: with
    the calls that only a supervisor may make."""
    import pyseccomp  # here, because it loads libseccomp, which a machine that only runs the client need not have

    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    allow, argument, equal, masked = pyseccomp.ALLOW, pyseccomp.Arg, pyseccomp.EQ, pyseccomp.MASKED_EQ
    names = _ALLOWED.split() + (_SUPERVISORS.split() if supervisor else [])
    names += PROCESS_CALLS + UNIX_SOCKET_CALLS if processes else ()
    rules: list[tuple[Any, ...]] = [(name,) for name in names]
    if processes or kernel.landlock_abi() >= TRUNCATION_ABI:
        rules += [("truncate",), ("open",), ("openat",)]
    else:
        # A file that is opened only to be read can be emptied by that; one that is opened for writing, landlock sees.
        for name, flags in (("open", 1), ("openat", 2)):
            rules.append((name, argument(flags, masked, os.O_TRUNC, 0)))
            for mode in (os.O_WRONLY, os.O_RDWR):
                rules.append((name, argument(flags, masked, os.O_ACCMODE | os.O_TRUNC, mode | os.O_TRUNC)))
    for name, *arguments in rules:
        try:
            program.add_rule(allow, name, *arguments)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    if processes:
        program.add_rule(allow, "socket", argument(0, equal, socket.AF_UNIX))
    else:
        program.add_rule(allow, "sendto", argument(4, equal, 0))  # to the other end of a pair, and to no address
    # A thread has its process's open files: those of another table nobody would see. A process is its parent's child:
    # what it used would count for nobody otherwise. And it has memory, files and folder of its own, or who looks at it
    # alone would not see who else changes them; only one that its parent waits for has the parent's memory.
    flags = CLONE_NAMESPACES | CLONE_PARENT | CLONE_THREAD
    shared = CLONE_VM | CLONE_FS | CLONE_FILES
    program.add_rule(allow, "clone", argument(0, masked, flags | CLONE_FILES, CLONE_THREAD | CLONE_FILES))
    if processes or supervisor:
        program.add_rule(allow, "clone", argument(0, masked, flags | shared, 0))
        vfork = CLONE_VM | CLONE_VFORK
        program.add_rule(allow, "clone", argument(0, masked, flags | shared | CLONE_VFORK, vfork))
    else:
        _refuse_processes(program)
    program.add_rule(allow, "close_range", argument(2, masked, CLOSE_RANGE_UNSHARE, 0))
    for option in READABLE_SOCKET_OPTIONS:
        program.add_rule(allow, "getsockopt", argument(2, masked, 0xFFFFFFFF, option))
    # A run gets the answer and no session: `run.stay_in_session` says why.
    program.add_rule(allow if supervisor else pyseccomp.ERRNO(0), "setsid")
    # Shared memory without a file is a file of the kernel's own: all of it stays while one page of it is mapped, and no
    # process is seen to hold more than that page.
    unnamed = MAP_SHARED | MAP_ANONYMOUS
    for flags in (0, MAP_SHARED, MAP_ANONYMOUS):
        program.add_rule(allow, "mmap", argument(3, masked, unnamed | MAP_HUGETLB, flags))
    program.add_rule(pyseccomp.ERRNO(errno.ENOMEM), "mmap", argument(3, masked, unnamed, unnamed))
    # Pages of the machine's pool of huge ones, which is somebody else's, and of which none is resident memory.
    program.add_rule(pyseccomp.ERRNO(errno.ENOMEM), "mmap", argument(3, masked, MAP_HUGETLB, MAP_HUGETLB))
    # The kernel reads only the lower half of this argument, so the upper one must not make it another.
    for advice in ADVICE:
        program.add_rule(allow, "madvise", argument(2, masked, 0xFFFFFFFF, advice))
    for advice in REFUSED_ADVICE:
        program.add_rule(pyseccomp.ERRNO(errno.EINVAL), "madvise", argument(2, masked, 0xFFFFFFFF, advice))
    for advice in (0, 1, 2, 3, 5):
        program.add_rule(allow, "fadvise64", argument(3, masked, 0xFFFFFFFF, advice))
    program.add_rule(pyseccomp.ERRNO(0), "fadvise64", argument(3, masked, 0xFFFFFFFF, FADV_DONTNEED))
    for name in _EXTENDED_ATTRIBUTES.split():
        program.add_rule(pyseccomp.ERRNO(errno.EOPNOTSUPP), name)
    for name in _OWNERS.split():
        if name not in names:
            program.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    program.add_rule(allow, "socketpair", argument(0, equal, socket.AF_UNIX))
    for request in IOCTLS:
        program.add_rule(allow, "ioctl", argument(1, equal, request))
    for command in FCNTLS:
        program.add_rule(allow, "fcntl", argument(1, equal, command))
    # Each pipe counts as large as they are made; the kernel answers so who has too many that are larger.
    program.add_rule(pyseccomp.ERRNO(errno.EPERM), "fcntl", argument(1, equal, F_SETPIPE_SZ))
    for option in SOCKET_OPTIONS:
        program.add_rule(allow, "setsockopt", argument(2, masked, 0xFFFFFFFF, option))
    for request in SUPERVISOR_IOCTLS if supervisor else ():
        program.add_rule(allow, "ioctl", argument(1, equal, request))
    for option in PRCTLS + (SUPERVISOR_PRCTLS if supervisor else ()):
        program.add_rule(allow, "prctl", argument(0, equal, option))
    # Only about itself: where supervisor and run have the same uid, the kernel would let it reach the supervisor.
    program.add_rule(allow, "prlimit64", *(() if supervisor else (argument(0, equal, 0),)))
    # Nothing is done here. Runs that all choose one CPU would wait for each other, which isn't the machine's doing.
    program.add_rule(pyseccomp.ERRNO(0), "sched_setaffinity", argument(0, equal, 0))
    return _exported(program)


def take_back(processes: bool, session: bool = False) -> bytes:
    """What makes a supervisor's list a run's: it takes away all that the one has and the other hasn't. `session`: also
    the changing of the limit on processes and the sealing of files, which are the supervisor's to do there."""
    import resource  # which Windows lacks

    import pyseccomp

    program, refuse = pyseccomp.SyscallFilter(pyseccomp.ALLOW), pyseccomp.ERRNO(errno.ENOSYS)
    argument, equal, unequal = pyseccomp.Arg, pyseccomp.EQ, pyseccomp.NE
    for name in _SUPERVISORS.split():
        program.add_rule(pyseccomp.ERRNO(errno.EPERM) if name in _OWNERS.split() else refuse, name)
    for option in SUPERVISOR_PRCTLS:
        program.add_rule(refuse, "prctl", argument(0, equal, option))
    for request in SUPERVISOR_IOCTLS:
        program.add_rule(refuse, "ioctl", argument(1, equal, request))
    program.add_rule(refuse, "prlimit64", argument(0, unequal, 0))
    program.add_rule(pyseccomp.ERRNO(0), "setsid")
    if session:
        forbid, masked = pyseccomp.ERRNO(errno.EPERM), pyseccomp.MASKED_EQ
        # The kernel reads only the lower half of this argument, so the upper one must not make it another.
        which = 0xFFFFFFFF, resource.RLIMIT_NPROC
        program.add_rule(forbid, "setrlimit", argument(0, masked, *which))
        program.add_rule(forbid, "prlimit64", argument(1, masked, *which), argument(2, unequal, 0))
        program.add_rule(forbid, "fcntl", argument(1, masked, 0xFFFFFFFF, F_ADD_SEALS))
    if not processes:
        _refuse_processes(program)
    return _exported(program)


def ask() -> bytes:
    """What asks the supervisor, in runs of tier 1: see `inside.approvals`."""
    import pyseccomp

    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in ASKED_CALLS:
        program.add_rule(pyseccomp.NOTIFY, name)
    for name in OLD_TIMES_CALLS:
        program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), name)
    return _exported(program)


def _refuse_processes(program: Any) -> None:
    import pyseccomp

    refuse = pyseccomp.ERRNO(errno.EPERM)
    program.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    for name in PROCESS_CALLS:
        program.add_rule(refuse, name)


def _exported(program: Any) -> bytes:
    import pyseccomp

    program.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(pyseccomp.Attr.CTL_NNP, 0)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def numbers(calls: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of system calls on this machine."""
    import pyseccomp

    arch = pyseccomp.system_arch()
    return tuple(pyseccomp.resolve_syscall(arch, name) for name in calls)


def problem() -> str | None:
    """Why no filter can be built here; None if one can."""
    try:
        build(processes=False)
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return None if os.path.exists("/proc/sys/kernel/seccomp") else "the kernel has no seccomp filters"
