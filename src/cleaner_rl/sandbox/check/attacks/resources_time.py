"""Attacks on time: programs that never end, whatever is done to end them."""

from __future__ import annotations

TIME = {
    "spin": "while True: pass",
    "spin_in_c": "sum(range(10**15))",
    "spin_without_gil": """
import hashlib, threading
def burn():
    while True:
        hashlib.sha256(bytes(1 << 22)).digest()
for _ in range(4):
    threading.Thread(target=burn).start()
""",
    "sleep_forever": "time.sleep(1e6)",
    "read_own_pipe_forever": "os.read(os.pipe()[0], 1)",
    "lock_forever": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "int_to_str": "sys.set_int_max_str_digits(0)\nstr(7 ** 9_000_000)",
    "regex": "import re\nre.match(r'(a*)*b', 'a' * 40)",
    "ignore_cpu_signal": """
import resource, signal
for name in (signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF, signal.SIGALRM):
    signal.signal(name, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
while True: pass
""",
    "exec_to_reset_clock": """
try:
    os.execv(sys.executable, [sys.executable, "-S", "-c", "while True: pass"])
except OSError:
    while True: pass
""",
}
