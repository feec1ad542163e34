"""Attacks out of the run through files: paths, links, races, and what the node does with files on the run's behalf."""

from __future__ import annotations

from cleaner_sandbox.check.attack import OK_OR_ERROR, SYSCALL, Attack, AttackClass
from cleaner_sandbox.protocol.results import RunStatus

_DECLINED = OK_OR_ERROR | {RunStatus.REFUSED}

_PROGRAMS = {
    "write_outside": """
import sysconfig
for folder in ("/", "/etc", "/usr", "/usr/lib", "/usr/bin", "/var/tmp", "/opt", "/root", "/run", "@HOME@", "@TMP@",
               "@CWD@", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), os.path.dirname(sys.executable)):
    try:
        with open(os.path.join(folder, "@NONCE@"), "w") as file:
            file.write("x")
    except OSError:
        pass
""",
    "overwrite": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        with open(path, "r+") as file:
            file.write("spoiled")
        win(path)
    except OSError:
        pass
""",
    "truncate": """
# By path and without opening it: older landlock rules don't cover it.
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.truncate(path, 1)
        win(path)
    except OSError:
        pass
""",
    "change_mode": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.chmod(path, 0o600)
        os.chmod(path, 0o666)
        win(path)
    except OSError:
        pass
""",
    "change_times": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.utime(path, (1, 1))
        win(path)
    except OSError:
        pass
""",
    "change_attributes": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.setxattr(path, "user.x", b"1")
        win(path)
    except OSError:
        pass
""",
    "remove": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.unlink(path)
        win(path)
    except OSError:
        pass
""",
    "rename_away": """
for path in ("@HOME@/open-@NONCE@", "@TMP@/open-@NONCE@"):
    try:
        os.rename(path, "here")
        win(path)
        os.rename("here", path)
    except OSError:
        pass
""",
    "hard_link_in": """
for path in ("@HOME@/token", "@TMP@/token"):
    try:
        os.link(path, "here")
        print(open("here").read())
    except OSError:
        pass
""",
    "symlink_in": """
for path in ("@HOME@/token", "@TMP@/token"):
    try:
        os.symlink(path, os.path.basename(path) + str(len(path)))
        print(open(os.path.basename(path) + str(len(path))).read())
    except OSError:
        pass
""",
    "dot_dot": """
for base in (".", "/proc/self/cwd", "/proc/self/root", "/tmp", "/dev/fd/0"):
    for up in range(16):
        try:
            print(open(base + "/.." * up + "@HOME@/token").read())
        except OSError:
            pass
""",
    "exists": """
# No content, but what lies where.
for path in ("@HOME@/token", "@TMP@/token"):
    try:
        os.stat(path)
        win(path)
    except OSError:
        pass
""",
    "list_outside": """
for folder in ("@HOME@", "@TMP@", os.path.dirname("@HOME@")):
    try:
        if "token" in os.listdir(folder) or os.path.basename("@HOME@") in os.listdir(folder):
            win(folder)
    except OSError:
        pass
""",
    "path_descriptor": """
# A descriptor that was opened for nothing, opened again through /proc.
for path in ("@HOME@/token", "@HOME@/private", "@TMP@/token"):
    try:
        handle = os.open(path, os.O_PATH)
        print(open("/proc/self/fd/%d" % handle).read())
    except OSError:
        pass
""",
    "open_tree": SYSCALL
    + """
folder, _ = syscall(428, -100, b"@HOME@", 1)
how = (ctypes.c_uint64 * 3)()
for start in (folder, -100):
    descriptor, _ = syscall(437, start, b"@HOME@/token", how, 24)
    if descriptor >= 0:
        print(os.read(descriptor, 4096))
""",
    "execute_outside": """
import subprocess
for command in (["@HOME@/tool"], ["/lib64/ld-linux-x86-64.so.2", "@HOME@/tool"], ["/bin/sh", "@HOME@/tool"]):
    try:
        done = subprocess.run(command, capture_output=True, timeout=1)
        os.write(1, done.stdout)
    except (OSError, subprocess.SubprocessError):
        pass
""",
    "watch_outside": SYSCALL
    + """
watcher = libc.inotify_init1(0o4000)
if watcher >= 0 and libc.inotify_add_watch(watcher, b"@HOME@", 0xFFF) >= 0:
    win("sees who opens what")
""",
    "watch_shared": SYSCALL
    + """
# Folders of the interpreter, which all runs have: who opens what in them?
watcher = libc.inotify_init1(0o4000)
if watcher >= 0 and libc.inotify_add_watch(watcher, os.path.dirname(os.__file__).encode(), 0x20) >= 0:
    win("sees which modules others load")
""",
    "strange_names": r"""
for name in (b"\xff\xfe", b"new\nline", b"\x1b[2J", b"-rf", b"*", b" ", b"x" * 255, "\u202e".encode(), b"%s%n"):
    try:
        os.mkdir(name)
        open(os.path.join(name, b"f"), "w").close()
    except OSError:
        pass
""",
    "undeletable_folder": """
os.makedirs("@NONCE@/inner")
open("@NONCE@/inner/file", "w").close()
os.chmod("@NONCE@/inner", 0)
os.chmod("@NONCE@", 0)
os.chmod(".", 0)
""",
    "link_swap_race": """
# The node looks at the folder when the run is over: a link that is a file half of the time.
import threading
def swap():
    while True:
        for target in ("@HOME@/token", None):
            try:
                os.symlink(target, "n") if target else open("n", "w").close()
                os.rename("n", "out")
            except OSError:
                pass
threading.Thread(target=swap, daemon=True).start()
time.sleep(0.2)
try:
    if os.fork() == 0:
        swap()
except OSError:
    pass
os._exit(0)
""",
}

_FETCHED = {
    "link_swap_race": ("out",),
}

_BY_THE_NODE = (
    Attack(
        "fetch_link",
        AttackClass.ESCAPE,
        "os.symlink('@HOME@/token', 'out')\nos.symlink('@TMP@', 'folder')\nos.symlink('/proc/self/environ', 'env')",
        fetch=("out", "folder/token", "env"),
    ),
    Attack(
        "fetch_outside",
        AttackClass.ESCAPE,
        "pass",
        _DECLINED,
        fetch=(
            "@HOME@/token",
            "../../../../../../..@HOME@/token",
            "./../../../../..@TMP@/token",
            "a\0b",
            "/proc/self/environ",
        ),
    ),
    Attack(
        "fetch_fifo",
        AttackClass.ESCAPE,
        "# The node must not wait for somebody to write.\ntry:\n    os.mkfifo('out')\nexcept OSError:\n    pass",
        fetch=("out",),
    ),
    Attack("fetch_endless", AttackClass.ESCAPE, "os.symlink('/dev/zero', 'out')", fetch=("out",)),
    Attack(
        "fetch_sparse",
        AttackClass.ESCAPE,
        "try:\n    open('out', 'wb').truncate(1 << 38)\nexcept OSError:\n    pass",
        fetch=("out",),
    ),
    Attack(
        "fetch_hard_link",
        AttackClass.ESCAPE,
        "for i, p in enumerate(('@HOME@/token', '@TMP@/token')):\n"
        "    try:\n        os.link(p, 'out%d' % i)\n    except OSError:\n        pass",
        fetch=("out0", "out1"),
    ),
    *(
        Attack(f"put_{name}", AttackClass.ESCAPE, "pass", _DECLINED, files={path: b"planted"})
        for name, path in {
            "parent": "../@NONCE@",
            "absolute": "/var/tmp/@NONCE@",
            "nul": "@NONCE@\0.txt",
            "hidden_parent": "a/../../../../../../var/tmp/@NONCE@",
        }.items()
    ),
    Attack(
        "put_over_harness",
        AttackClass.ESCAPE,
        "import json, random, re\nprint('fine')",
        _DECLINED,
        files=dict.fromkeys(
            ("json.py", "random.py", "re.py", "sitecustomize.py", "os.py", "encodings/__init__.py"),
            b"import os\nos.write(1, b'hijacked ')\nraise SystemExit(0)\n",
        ),
    ),
)

ATTACKS: tuple[Attack, ...] = (
    *(
        Attack(f"file_{name}", AttackClass.ESCAPE, text, OK_OR_ERROR, fetch=_FETCHED.get(name, ()))
        for name, text in _PROGRAMS.items()
    ),
    *_BY_THE_NODE,
)
