"""Attacks on what a kernel keeps in tables and on disks: files, descriptors, kernel objects."""

from __future__ import annotations

from cleaner_sandbox.check.attack import SYSCALL

DISK = {
    "disk_fill": """
written = 0
try:
    for number in range(24):
        with open("f%d" % number, "wb", buffering=0) as file:
            written += file.write(bytes(1 << 20))
except OSError:
    pass
if written > 16 << 20:
    win(written)
""",
    "disk_fill_one_file": """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
written = 0
try:
    with open("big", "wb", buffering=0) as file:
        for _ in range(24):
            written += file.write(bytes(1 << 20))
except OSError:
    pass
if written > 16 << 20:
    win(written)
""",
    "disk_fill_tmp": """
written = 0
for folder in ("/tmp", "/var/tmp", "/run", "/dev/shm", os.path.expanduser("~")):
    try:
        os.makedirs(folder + "/@NONCE@")
        for number in range(6):
            with open(folder + "/@NONCE@/f%d" % number, "wb", buffering=0) as file:
                written += file.write(bytes(4 << 20))
    except OSError:
        pass
if written > 16 << 20:
    win(written)
""",
    "disk_fill_deleted": """
# Files without a name: a count of what lies in the folder sees nothing.
written, held = 0, []
try:
    for number in range(24):
        held.append(open("f", "wb", buffering=0))
        os.unlink("f")
        written += held[-1].write(bytes(1 << 20))
except OSError:
    pass
if written > 16 << 20:
    win(written)
""",
    "disk_reserve": """
try:
    descriptor = os.open("reserved", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(descriptor, 0, 24 << 20)
    win("24 MB")
except OSError:
    pass
""",
    "inode_fill": """
made = 0
try:
    for number in range(400):
        open("f%d" % number, "w").close()
        made += 1
except OSError:
    pass
if made > 128:
    win(made)
""",
    "inode_fill_by_links": """
made = 0
try:
    for number in range(400):
        os.symlink("x" * 60, "l%d" % number)
        made += 1
except OSError:
    pass
if made > 128:
    win(made)
""",
    "sparse_file": """
try:
    with open("sparse", "wb") as file:
        file.truncate(1 << 40)
    win("1 TB, at least to those who copy it")
except OSError:
    pass
""",
}

KERNEL_OBJECTS = {
    "descriptors": """
held = []
try:
    for _ in range(512):
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
if len(held) > 80:
    win(len(held))
""",
    "descriptors_raise_limit": """
import resource
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
except (ValueError, OSError):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
try:
    for _ in range(500):
        held.append(os.dup(1))
except OSError:
    pass
if len(held) > 80:
    win(len(held))
""",
    "descriptors_in_flight": """
# Descriptors that lie in a socket's queue count for no process's table.
import array, socket
sent = 0
try:
    for _ in range(20):
        left, right = socket.socketpair()
        right.setblocking(False), left.setblocking(False)
        for _ in range(40):
            fd = os.open("/dev/null", os.O_RDONLY)
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            os.close(fd)
            sent += 1
except OSError:
    pass
if sent > 128:
    win(sent)
""",
    "pipes": """
held = []
try:
    for _ in range(300):
        held.append(os.pipe())
except OSError:
    pass
if len(held) > 64:
    win(len(held))
""",
    "timers": SYSCALL
    + """
made = 0
timer = ctypes.c_int()
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_long), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_long * 6)]
event = Event(0, 10, 0)
while made < 4096 and syscall(222, 1, ctypes.byref(event), ctypes.byref(timer))[0] == 0:
    made += 1
if made == 4096:
    win(made)
""",
    "realtime_priority": """
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    win("runs before everybody else")
except OSError:
    pass
try:
    if os.nice(-10) < 0:
        win("nice")
except OSError:
    pass
""",
    "starve_by_oom_score": """
# The kernel's choice of whom to kill when memory is short.
for pid in seen():
    try:
        old = open("/proc/%d/oom_score_adj" % pid).read()
        with open("/proc/%d/oom_score_adj" % pid, "w") as file:
            file.write(old)
        win(pid)
        break
    except OSError:
        pass
""",
    "core_dump": """
import resource
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
    win("could leave its memory on the disk")
except (ValueError, OSError):
    pass
""",
}
