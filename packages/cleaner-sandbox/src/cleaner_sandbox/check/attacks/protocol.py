"""Attacks on the verdict: programs that fail, and forge the word that they did not.

A run is fine if and only if its process ends with code 0, so `os._exit(0)` is no forgery; these end otherwise, and what
they print, patch or write into descriptors must not change that.
"""

from __future__ import annotations

from cleaner_sandbox.check.attack import ERROR, OK_OR_ERROR, TIMEOUT, Attack, AttackClass
from cleaner_sandbox.protocol.results import RunStatus

_FORGERIES = r"""
import json, struct
forgeries = [b"@@E\n", b"@@E 0\n", b"\n@@E\n@@END@@\n", b"\x00" * 64, b"\x04\n", b"ok\n", b"OK\n0\n", b"\n0\n"]
for status in ("ok", "OK", "success", "Success", "Finished"):
    for key in ("status", "result", "kind", "type"):
        record = json.dumps({key: status, "success": True, "exit_code": 0, "returncode": 0, "return_code": 0,
                             "output": "", "stdout": "", "stderr": "", "exception": None, "error": None}).encode()
        forgeries += [record + b"\n", struct.pack("<I", len(record)) + record, struct.pack(">I", len(record)) + record,
                      struct.pack("<Q", len(record)) + record, b"Content-Length: %d\r\n\r\n" % len(record) + record]
"""

_ALL_DESCRIPTORS = """
for number in [*range(3, 256), 1, 2]:
    try:
        os.set_blocking(number, False)
        for forged in forgeries:
            os.write(number, forged)
    except OSError:
        pass
"""

_FAILING = {
    # Each ends with an exception or a code other than zero.
    "end_markers": _FORGERIES + "for forged in forgeries:\n    os.write(1, forged)\nraise ValueError('mine')",
    "end_markers_on_stderr": _FORGERIES + "for forged in forgeries:\n    os.write(2, forged)\nraise ValueError('mine')",
    "every_descriptor": _FORGERIES + _ALL_DESCRIPTORS + "raise ValueError('mine')",
    "every_descriptor_and_exit": _FORGERIES + _ALL_DESCRIPTORS + "os._exit(3)",
    "every_descriptor_by_message": _FORGERIES
    + """
import socket
for number in range(3, 256):
    try:
        s = socket.socket(fileno=os.dup(number))
        s.setblocking(False)
        for forged in forgeries:
            s.sendmsg([forged])
    except OSError:
        pass
raise ValueError("mine")
""",
    "marker_without_newline": "os.write(1, b'@@E')\nos.write(1, b'@@')\nsys.exit(5)",
    "success_text": "print('Exit code: 0\\nAll tests passed\\n[finished successfully]')\nsys.exit(1)",
    "fake_json_result": """print('{"status": "ok", "success": true, "exit_code": 0}')\nsys.exit(1)""",
    "pickle": """
# Whoever unpickles a run's data runs the run's code.
import pickle, struct
class Boom:
    def __reduce__(self):
        return (os.system, ("touch /var/tmp/@NONCE@",))
for protocol in range(6):
    data = pickle.dumps(Boom(), protocol)
    for number in [*range(3, 256), 1, 2]:
        for length in ("", "<I", ">I", "<Q"):
            try:
                os.set_blocking(number, False)
                os.write(number, (struct.pack(length, len(data)) if length else b"") + data)
            except OSError:
                pass
sys.exit(4)
""",
    "huge_length": """
# A length that the reader believes, and makes room for.
import struct
for number in range(3, 256):
    for record in (b"\\xff" * 8, struct.pack("<I", 0x7FFFFFFF), struct.pack(">I", 1 << 30), struct.pack("<Q", 1 << 40)):
        try:
            os.set_blocking(number, False)
            os.write(number, record)
        except OSError:
            pass
sys.exit(4)
""",
    "shut_every_descriptor": "os.closerange(0, 4096)\nos._exit(3)",
    "replace_every_descriptor": """
null = os.open("/dev/null", os.O_RDWR)
for number in range(64):
    if number != null:
        try:
            os.dup2(null, number)
        except OSError:
            pass
raise ValueError("mine")
""",
    "patched_builtins": """
import builtins, io, json, os, pickle, struct, traceback
for module in (json, pickle, struct, traceback, io):
    for name in list(vars(module)):
        if not name.startswith("__"):
            setattr(module, name, lambda *a, **k: b"ok")
for name in ("repr", "str", "len", "isinstance", "open", "print", "type", "getattr", "hasattr", "min", "max"):
    setattr(builtins, name, lambda *a, **k: "ok")
raise ValueError("mine")
""",
    "patched_exit": """
os._exit = lambda code: None
sys.exit = lambda code=0: None
sys.excepthook = lambda *a: None
import atexit, threading
threading.excepthook = lambda *a: None
sys.unraisablehook = lambda *a: None
raise ValueError("mine")
""",
    "patched_write": """
import builtins
true_write = os.write
os.write = lambda fd, data: len(data)
sys.stdout = sys.stderr = None
del builtins.print
raise ValueError("mine")
""",
    "empty_modules": "for name in list(sys.modules):\n    sys.modules[name] = None\nraise ValueError('mine')",
    "trace_the_harness": """
# Called at every line of whoever called us, too.
def trace(frame, event, argument):
    frame.f_trace_opcodes = True
    if event == "return":
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, BaseException):
                frame.f_locals[name] = None
    return trace
frame = sys._getframe()
while frame:
    frame.f_trace = trace
    frame = frame.f_back
sys.settrace(trace)
sys.setprofile(lambda *a: None)
raise ValueError("mine")
""",
    "harness_objects": _FORGERIES
    + """
# What the harness left within reach: files, sockets, callbacks in the frames above.
frame = sys._getframe().f_back
while frame:
    for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
        for name in ("write", "send", "sendall", "put"):
            method = getattr(value, name, None)
            if callable(method) and not isinstance(value, type):
                for forged in forgeries[:8]:
                    try:
                        method(forged)
                    except BaseException:
                        pass
    frame = frame.f_back
raise ValueError("mine")
""",
    "exception_that_fails_to_print": """
class Odd(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
    @property
    def args(self): os._exit(9)
raise Odd()
""",
    "exception_with_odd_class": """
class Meta(type):
    @property
    def __name__(cls): raise KeyboardInterrupt
    @property
    def __module__(cls): return 7
    __qualname__ = 3
class Odd(Exception, metaclass=Meta):
    pass
raise Odd("mine")
""",
    "exception_with_huge_text": "raise ValueError('x' * (20 << 20))",
    "exception_with_strange_text": r"raise ValueError('\ud800\x00\x1b[2J\n{\"status\": \"ok\"}\u2028')",
    "exception_in_a_circle": """
first, second = ValueError("a"), KeyError("b")
first.__cause__, second.__cause__ = second, first
first.__context__, second.__context__ = second, first
raise first
""",
    "exception_in_a_chain": """
error = None
for number in range(900):
    new = ValueError(number)
    new.__context__ = error
    error = new
raise error
""",
    "exception_group": """
raise ExceptionGroup("all", [ExceptionGroup(str(i), [ValueError(j) for j in range(50)]) for i in range(50)])
""",
    "syntax_error_with_odd_fields": """
error = SyntaxError("x")
error.lineno, error.text, error.offset, error.filename = "a", b"\\xff", -1, 7
raise error
""",
    "exit_with_odd_object": "class O:\n    def __str__(self): raise ValueError\nsys.exit(O())",
    "exit_with_huge_number": "sys.exit(2**70)",
    "raise_base_exception": "class Quiet(BaseException): pass\nraise Quiet",
    "raise_system_exit_subclass": "class Fine(SystemExit):\n    code = property(lambda self: 1/0)\nraise Fine('text')",
    "fail_in_generator_exit": "raise GeneratorExit",
}

_ENDLESS = {
    "exception_that_never_prints": """
class Odd(Exception):
    def __str__(self):
        while True: pass
raise Odd()
""",
    "exit_hook_that_never_ends": """
def hook(*_):
    while True: pass
sys.excepthook = hook
raise ValueError("mine")
""",
    "forge_then_hang": _FORGERIES + _ALL_DESCRIPTORS + "time.sleep(60)",
    "close_output_then_hang": "os.closerange(0, 256)\ntime.sleep(60)",
}

ATTACKS: tuple[Attack, ...] = (
    *(Attack(f"forge_{name}", AttackClass.PROTOCOL, text, ERROR) for name, text in _FAILING.items()),
    *(Attack(f"forge_{name}", AttackClass.PROTOCOL, text, TIMEOUT) for name, text in _ENDLESS.items()),
    Attack("forge_exit_256", AttackClass.PROTOCOL, "sys.exit(256)", OK_OR_ERROR),
    Attack(
        "forge_exit_in_thread",
        AttackClass.PROTOCOL,
        "import threading\nthreading.Thread(target=os._exit, args=(3,)).start()\ntime.sleep(9)",
        ERROR,
    ),
    Attack(
        "forge_output_file",
        AttackClass.PROTOCOL,
        """
# Where the output is a file it can be cut, rewound, reserved or made to look long.
for number in (1, 2):
    try:
        os.posix_fallocate(number, 0, 64 << 20)
        win("64 MB reserved in the node's hands")
    except OSError:
        pass
    try:
        os.ftruncate(number, 0)
        os.pwrite(number, b"fine", 1 << 40)
        win("1 TB of output, by its length")
    except OSError:
        pass
""",
        OK_OR_ERROR | {RunStatus.OUTPUT_LIMIT},
    ),
)
