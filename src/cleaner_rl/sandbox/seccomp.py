"""The system calls that a run may make: a list of what is allowed; all else answers ENOSYS.

Built once, by libseccomp, and exported; each run only hands the finished program to the kernel.
"""

from __future__ import annotations

import errno
import os
import socket
import tempfile

_ALLOWED = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range fstat stat lstat
newfstatat statx statfs fstatfs open openat openat2 creat access faccessat faccessat2 dup dup2 dup3 fcntl flock fsync
fdatasync sync_file_range truncate ftruncate fallocate fadvise64 getdents getdents64 getcwd chdir fchdir rename renameat
renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat
umask utime utimes utimensat futimesat copy_file_range sendfile splice tee pipe pipe2
mmap mprotect munmap mremap madvise msync mincore brk membarrier
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime inotify_init1 inotify_add_watch inotify_rm_watch
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigqueueinfo sigaltstack pause
kill tgkill alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getrusage sysinfo uname
getpid getppid gettid getpgid getpgrp getsid setsid setpgid getuid geteuid getgid getegid getresuid getresgid getgroups
getrlimit setrlimit getpriority getcpu capget
sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
futex set_robust_list get_robust_list set_tid_address rseq arch_prctl restart_syscall getrandom
exit exit_group wait4 waitid
sendto recvfrom recvmsg recvmmsg shutdown getsockname getpeername getsockopt setsockopt
"""
"""Some of these exist on some machines only; libseccomp leaves out what the machine doesn't have. Not here, though
harmless to look at: `sendmsg`, which puts descriptors in flight that count for no limit; `memfd_create` and System
V shared memory, which hold memory that no process maps."""

PROCESS_CALLS = ("fork", "vfork", "execve", "execveat")
UNIX_SOCKET_CALLS = ("bind", "listen", "accept", "accept4", "connect")

CLONE_THREAD = 0x00010000
CLONE_NAMESPACES = 0x7E020000
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TIOCGWINSZ (`isatty`), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
PRCTLS = (15, 16, 3, 23, 0x53564D41)
"""Names of threads, reading two flags, naming a mapping."""


def build(processes: bool) -> bytes:
    """The filter as a BPF program; `processes`: whether a run may start any (tier 2), or threads only."""
    import pyseccomp  # here, because it loads libseccomp, which a machine that only runs the client need not have

    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    allow, argument, equal, masked = pyseccomp.ALLOW, pyseccomp.Arg, pyseccomp.EQ, pyseccomp.MASKED_EQ
    for name in (*_ALLOWED.split(), *(PROCESS_CALLS + UNIX_SOCKET_CALLS if processes else ())):
        try:
            program.add_rule(allow, name)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    if processes:
        program.add_rule(allow, "clone", argument(0, masked, CLONE_NAMESPACES, 0))
        program.add_rule(allow, "socket", argument(0, equal, socket.AF_UNIX))
    else:
        program.add_rule(allow, "clone", argument(0, masked, CLONE_THREAD | CLONE_NAMESPACES, CLONE_THREAD))
        program.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", argument(0, masked, CLONE_THREAD, 0))
        for name in PROCESS_CALLS:
            program.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    program.add_rule(allow, "socketpair", argument(0, equal, socket.AF_UNIX))
    for request in IOCTLS:
        program.add_rule(allow, "ioctl", argument(1, equal, request))
    for option in PRCTLS:
        program.add_rule(allow, "prctl", argument(0, equal, option))
    # Only about itself: where supervisor and run have the same uid, the kernel would let it reach the supervisor.
    program.add_rule(allow, "prlimit64", argument(0, equal, 0))
    program.add_rule(allow, "sched_setaffinity", argument(0, equal, 0))
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(pyseccomp.Attr.CTL_NNP, 0)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def signal_calls() -> tuple[int, int]:
    """Numbers of `kill` and `tgkill` on this machine."""
    import pyseccomp

    arch = pyseccomp.system_arch()
    return pyseccomp.resolve_syscall(arch, "kill"), pyseccomp.resolve_syscall(arch, "tgkill")


def problem() -> str | None:
    """Why no filter can be built here; None if one can."""
    try:
        build(processes=False)
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return None if os.path.exists("/proc/sys/kernel/seccomp") else "the kernel has no seccomp filters"
