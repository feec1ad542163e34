"""Attacks out of the run through the kernel: privileges, namespaces, mounts, devices, and calls that few programs need.

Calls that would harm the machine are made with arguments that the kernel declines only after it has checked whether the
caller may make them at all: `EFAULT` or `EINVAL` says that the door is open, `EPERM` or `ENOSYS` that it is shut.
"""

from __future__ import annotations

from cleaner_sandbox.check.attack import CRASHED, OK_OR_ERROR, SYSCALL, Attack, AttackClass

DOORS = {
    # name: (call, its arguments, what it would give)
    "reboot": ("169, 1, 2, 3, 0", "the magic numbers are wrong"),
    "kexec": ("246, 0, 99, 0, 0xFFFF", "no segments at all"),
    "load_module": ("175, 0, 0, 0", "no image"),
    "unload_module": ("176, 0, 0", "no name"),
    "swap_on": ("167, 0, 0", "no path"),
    "accounting": ("163, 1", "a bad path"),
    "set_clock": ("227, 99, 0", "no such clock"),
    "adjust_clock": ("305, 99, 0", "no such clock"),
    "bpf": ("321, 99, 0, 0", "no such command"),
    "perf_events": ("298, 0, 0, -1, -1, 0", "no attributes"),
    "io_uring": ("425, 8, 0", "no parameters"),
    "userfaultfd": ("323, 0xF0000000", "no such flags"),
    "fanotify": ("300, 0xF0000000, 0", "no such flags"),
    "raw_ports": ("172, 9", "no such level"),
    "quotas": ("443, -1, 0, 0, 0", "no such descriptor"),
    "open_by_handle": ("304, -100, 0, 0", "no handle"),
    "local_descriptor_table": ("154, 0, 0, 0", "reads an empty table"),
    "memory_policy": ("237, 0, 4096, 99, 0, 0, 0", "no such policy"),
    "kernel_log": ("103, 10, 0, 0", "the size of the log"),
    "landlock_nested": ("444, 0, 0, 99", "no such flags"),
    "secret_memory": ("447, 0xF0000000", "no such flags"),
    "mount_query": ("457, 0, 0, 0, 0xFF", "no request"),
    "handle_of_path": ("303, -100, 0, 0, 0, 0xF0000000", "no such flags"),
}
"""System calls that a run has no business with, and why these arguments are harmless."""

_DOOR = """
result, error = syscall({call})
if not refused(error):
    win("answer %d, error %d" % (result, error))
"""

_PROGRAMS = {
    "mount_tmpfs": """
os.makedirs("m", exist_ok=True)
if libc.mount(b"none", b"m", b"tmpfs", 0, None) == 0:
    win("mounted")
    libc.umount2(b"m", 2)
""",
    "mount_bind": """
os.makedirs("m", exist_ok=True)
if libc.mount(b"/proc", b"m", None, 4096 | 16384, None) == 0:
    win("bound")
    libc.umount2(b"m", 2)
""",
    "mount_remount_writable": """
# Of a folder where nothing is mounted, which is declined after the question of rights.
if not refused(syscall(165, 0, b"/usr/bin", 0, 32 | 4096, 0)[1]):
    win("may remount")
""",
    "mount_new_api": """
for number, arguments in ((430, (b"tmpfs", 0)), (428, (-100, b"/", 1))):
    descriptor, _ = syscall(number, *arguments)
    if descriptor >= 0:
        win("call %d" % number)
""",
    "unmount": """
for path in (b"/proc", b"/tmp", b"/dev", b"/sys"):
    if not refused(syscall(166, path, 0xF000)[1]):  # flags that don't exist
        win(path)
""",
    "unshare_user": """
if libc.unshare(0x10000000) == 0:
    win("all capabilities in a namespace of its own")
""",
    "unshare_others": """
for flag in (0x20000, 0x40000000, 0x08000000, 0x04000000, 0x20000000, 0x02000000):
    if libc.unshare(flag) == 0:
        win(hex(flag))
""",
    "clone_user": """
# A filter that looks at unshare alone doesn't see it.
pid, error = syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
if pid > 0:
    win("child in a user namespace")
""",
    "clone3_user": """
class Arguments(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in "flags pidfd child parent signal stack size tls set n cgroup".split()]
arguments = Arguments(flags=0x10000000, signal=17)
pid, error = syscall(435, ctypes.byref(arguments), ctypes.sizeof(arguments))
if pid == 0:
    os._exit(0)
if pid > 0:
    win("its flags lie in memory, where a filter can't look")
""",
    "chroot": """
os.makedirs("jail", exist_ok=True)
try:
    os.chroot("jail")
    win("chroot")
except OSError:
    pass
""",
    "pivot_root": """
if not refused(syscall(155, b"/nowhere", b"/nowhere")[1]):
    win("may change the root")
""",
    "set_user": """
for change in (lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]), lambda: os.setresgid(0, 0, 0)):
    try:
        change()
    except OSError:
        pass
try:
    print(open("@HOME@/private").read())
except OSError:
    pass
""",
    "set_capabilities": """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
syscall(125, header, data)
if data[0] or data[1] or data[3]:
    win("capabilities %x" % data[1])
data[:] = [0xFFFFFFFF] * 6
if syscall(126, header, data)[0] == 0:
    win("took all")
""",
    "setuid_binary": """
import glob, stat
locked = any(line.split() == ["NoNewPrivs:", "1"] for line in open("/proc/self/status"))
for path in glob.glob("/usr/bin/*") + glob.glob("/bin/*"):
    try:
        info = os.stat(path)
    except OSError:
        continue
    if info.st_mode & stat.S_ISUID and info.st_uid == 0 and not locked:
        win("would gain privileges by " + path)
        break
""",
    "setuid_file": """
with open("suid", "wb") as file:
    file.write(open("/bin/sleep", "rb").read(1 << 16))
os.chown("suid", 0, 0)
os.chmod("suid", 0o6755)
if os.stat("suid").st_mode & 0o6000 == 0o6000:
    win("a file of root's that gives root")
""",
    "device_node": """
import stat
for name, major, minor in (("mem", 1, 1), ("disk", 254, 0), ("null", 1, 3)):
    try:
        os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        win(name)
    except OSError:
        pass
""",
    "devices": """
import glob
for path in ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vhost-vsock",
             "/dev/net/tun", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop-control", "/dev/mapper/control",
             "/dev/userfaultfd", "/dev/console", "/dev/tty0", "/dev/uinput", "/dev/snapshot", "/dev/cpu/0/msr"):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        win(path)
    except OSError:
        pass
""",
    "proc_sys_write": """
# Opened, never written.
for path in ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "kernel/randomize_va_space",
             "fs/binfmt_misc/register", "net/ipv4/ip_forward", "kernel/hostname"):
    try:
        os.close(os.open("/proc/sys/" + path, os.O_WRONLY))
        win(path)
    except OSError:
        pass
""",
    "proc_triggers": """
for path in ("/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/attr/current", "/proc/1/clear_refs"):
    try:
        os.close(os.open(path, os.O_WRONLY))
        win(path)
    except OSError:
        pass
""",
    "proc_kernel_memory": """
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/vmallocinfo", "/proc/iomem"):
    try:
        data = os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 4096)
        if data.strip(b"0 "):
            win(path) if path != "/proc/kallsyms" or not data.startswith(b"0000000000000000") else None
    except OSError:
        pass
""",
    "sys_write": """
import glob
for path in ("/sys/power/state", "/sys/kernel/mm/ksm/run", "/sys/kernel/uevent_helper", "/sys/kernel/profiling",
             *glob.glob("/sys/class/net/*/mtu"), *glob.glob("/sys/block/*/queue/scheduler")):
    try:
        os.close(os.open(path, os.O_WRONLY))
        win(path)
    except OSError:
        pass
""",
    "sys_read": """
import glob
if glob.glob("/sys/class/dmi/id/*") or glob.glob("/sys/class/net/*") or glob.glob("/sys/kernel/*"):
    win("the machine is described")
""",
    "cgroup_write": """
import glob
for folder in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")):
    for name in ("cgroup.procs", "release_agent", "memory.max", "cgroup.subtree_control"):
        try:
            os.close(os.open(folder + "/" + name, os.O_WRONLY))
            win(folder + "/" + name)
        except OSError:
            pass
""",
    "keyring": """
serial, error = syscall(248, b"user", b"@NONCE@", b"value", ctypes.c_size_t(5), -3)
if serial >= 0:
    win("a key that outlives the run")
    syscall(250, 3, serial)
""",
    "keyring_join": """
if not refused(syscall(250, 0, -4, 1)[1]):
    win("keyctl answers")
""",
    "personality": """
before, _ = syscall(135, 0xFFFFFFFF)
result, error = syscall(135, 0x0040000)
if error == 0 and syscall(135, 0xFFFFFFFF)[0] & 0x0040000:
    win("no address randomization for what it starts")
""",
    "hostname": """
import socket
name = socket.gethostname().encode()
if libc.sethostname(name, len(name)) == 0:
    win("names the machine")
""",
    "terminal_injection": """
import fcntl
for path in ("/dev/tty", "@PTY@", "/proc/self/fd/0"):
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(descriptor, b"@NONCE@\\n")
        fcntl.ioctl(descriptor, 0x5412, b"x")  # TIOCSTI: as if typed by the operator
        win(path)
    except OSError:
        pass
""",
    "seccomp_listener": """
# A filter of one's own, with a notification descriptor, could answer calls in the place of the kernel.
class Filter(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("code", ctypes.c_void_p)]
if syscall(317, 1, 8, ctypes.byref(Filter(0, None)))[1] in (errno.EINVAL, errno.EFAULT):
    win("may install filters")
""",
    "module_by_socket_family": """
# Asking for a strange family makes the kernel load its module.
import socket
# alg, rds, tipc, bluetooth, can, x25, ipx, appletalk, netlink, packet, vsock, xdp
for family in (38, 21, 30, 31, 29, 9, 4, 5, 16, 17, 40, 44):
    try:
        socket.socket(family, socket.SOCK_SEQPACKET if family in (38, 21, 9) else socket.SOCK_RAW).close()
        win(family)
    except OSError:
        pass
""",
}

_FOREIGN = {
    "syscalls_32_bit": r"""
# int 0x80 with the number of 32-bit getpid: a filter that only knows 64-bit numbers takes it for another call.
import mmap
code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
area = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
area.write(code)
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
if call() == os.getpid():
    win("32-bit calls pass")
""",
    "syscalls_x32": """
result, error = syscall(0x40000000 + 39)
if result == os.getpid():
    win("x32 calls pass")
""",
}

ATTACKS: tuple[Attack, ...] = (
    *(
        Attack(f"door_{name}", AttackClass.ESCAPE, SYSCALL + _DOOR.format(call=call))
        for name, (call, _) in DOORS.items()
    ),
    *(Attack(name, AttackClass.ESCAPE, SYSCALL + text, OK_OR_ERROR) for name, text in _PROGRAMS.items()),
    # A filter may well kill who speaks a foreign tongue.
    *(Attack(name, AttackClass.ESCAPE, SYSCALL + text, OK_OR_ERROR | CRASHED) for name, text in _FOREIGN.items()),
)
