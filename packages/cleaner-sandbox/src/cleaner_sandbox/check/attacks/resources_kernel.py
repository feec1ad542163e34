"""Attacks on memory that is the kernel's, and in no process's count: tables, queues, locks, pinned pages."""

from __future__ import annotations

from dataclasses import replace

from cleaner_sandbox.check.attack import ANY_BUT_FAULT, SMALL, SYSCALL, Attack, AttackClass

LIMITS = replace(SMALL, cpu_seconds=6.0, wall_seconds=12.0, memory_mb=24, disk_mb=16, open_files=1024)
_HELD = """
time.sleep(1.6)
if held > 24 << 20:
    win(held)
"""
"""Whoever counts has had the time to."""

_MAP = (
    SYSCALL
    + """
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def mapped(number, apart, touch):
    # Readable pages, each at a place of its own.
    made = 0
    for place in range(number):
        at = (1 << 40) + place * apart
        if libc.mmap(at, 4096, 1, 0x100022, -1, 0) == at:
            made += 1
            if touch:
                ctypes.c_char.from_address(at).value
    return made
"""
)
_PINNED = """
import socket
SIZE = 8 << 20
def pages():
    # A file that is deleted as soon as each of its pages lies in a socket's queue.
    while True:
        descriptor = os.open("f", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for _ in range(SIZE >> 20):
            os.write(descriptor, bytes(1 << 20))
        for place in range(0, SIZE, 4096):
            yield descriptor, place
        os.close(descriptor)
        os.unlink("f")
held, pairs, page = 0, [], pages()
try:
    while held < scale * 48 << 20 and len(pairs) < scale * 60:
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True:
                send(pairs[-1][0].fileno(), *next(page))
                held += 4096
        except BlockingIOError:
            pass
except OSError:
    pass
"""

_PAGE_TABLES = (
    _MAP
    + """
# A page of zeros is no resident memory, and 8 KB of tables lead to each.
read, write = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.write(write, b"%8d" % mapped(scale * 3000, 1 << 30, touch=True))
        time.sleep(4)
        os._exit(0)
os.close(write)
held = sum(int(os.read(read, 8) or 0) for _ in range(4)) * 8192
"""
    + _HELD
)

_PROGRAMS = {
    "memory_page_tables": _PAGE_TABLES,
    "memory_mappings": _MAP
    + """
# Mappings that nothing was ever read from: a record each, and one more with every fork.
held = mapped(50_000, 8192, touch=False) * 200
for _ in range(8):
    if os.fork() == 0:
        time.sleep(4)
        os._exit(0)
    held += 50_000 * 200
"""
    + _HELD,
    "memory_file_locks": """
# The kernel has no limit on locks: a record each.
import fcntl, struct
held = 0
for number in range(60):
    descriptor = os.open("f%d" % number, os.O_RDWR | os.O_CREAT)
    for place in range(4000, 0, -1):
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 2 * place, 1, 0))
            held += 210
        except OSError:
            pass
"""
    + _HELD,
    "memory_locks_on_pipes": """
# Whatever can be opened can be locked.
import fcntl, struct
held = 0
for number in range(60):
    descriptor = os.pipe()[0]
    for place in range(4000, 0, -1):
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 2 * place, 1, 0))
            held += 210
        except OSError:
            pass
"""
    + _HELD,
    "memory_locks_beside_a_long_path": """
# One open file with a path that the kernel can't tell, and nobody looks at the others.
import fcntl, struct
opened = [os.open("f%d" % number, os.O_RDWR | os.O_CREAT) for number in range(30)]
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
far = open("far", "w")
held = 0
for descriptor in opened:
    for place in range(6000, 0, -1):
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 2 * place, 1, 0))
            held += 210
        except OSError:
            pass
"""
    + _HELD,
    "memory_open_file_locks": """
# The same for locks that belong to no process.
import fcntl, struct
held = 0
for number in range(60):
    descriptor = os.open("f%d" % number, os.O_RDWR | os.O_CREAT)
    for place in range(4000, 0, -1):
        try:
            fcntl.fcntl(descriptor, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * place, 1, 0))
            held += 210
        except OSError:
            pass
"""
    + _HELD,
    "memory_epoll": """
# Each of many epolls watches each of many pipes.
import select
held, watched = 0, []
for _ in range(200):
    watched += os.pipe()
epolls = [select.epoll() for _ in range(400)]
for epoll in epolls:
    for descriptor in watched:
        epoll.register(descriptor, 0)
        held += 200
"""
    + _HELD,
    "memory_behind_many_copies": """
# Each copy of an epoll's descriptor lists all that it watches: to read that takes longer than a limit is away.
import select
epoll = select.epoll()
events = [os.eventfd(0) for _ in range(100)]
for number in range(150):
    for event in events:
        epoll.register(os.dup2(event, 800 + number), 0)
copies = [os.dup(epoll.fileno()) for _ in range(600)]
time.sleep(0.4)
child = os.fork()
area = bytearray(18 << 20)
for place in range(0, len(area), 4096):
    area[place] = 1
if child == 0:
    time.sleep(4)
    os._exit(0)
held = 2 * len(area)
"""
    + _HELD,
    "memory_pipes_of_many_processes": """
# A byte in a pipe takes a page; other processes hold other pipes.
held, pipes = 0, []
read, write = os.pipe()
def fill():
    filled = 0
    for _ in range(400):
        pipes.append(os.pipe2(os.O_NONBLOCK))
        try:
            while True:
                filled += os.write(pipes[-1][1], bytes(4096))
        except BlockingIOError:
            pass
    return filled
for _ in range(4):
    if os.fork() == 0:
        os.write(write, b"%9d" % fill())
        time.sleep(4)
        os._exit(0)
os.close(write)
held = sum(int(os.read(read, 9) or 0) for _ in range(4))
"""
    + _HELD,
    "memory_spliced_pages": """
# A socket counts the byte that was spliced into it, and holds the page that the byte lies in.
hole = os.pipe()
def send(target, descriptor, place):
    os.splice(descriptor, hole[1], 1, offset_src=place)
    try:
        os.splice(hole[0], target, 1, flags=2)
    except BlockingIOError:
        os.read(hole[0], 1)
        raise
"""
    + _PINNED
    + _HELD,
    "memory_sent_pages": """
# A socket counts the byte that was sent from a file, and holds the page that the byte lies in.
def send(target, descriptor, place):
    os.sendfile(target, descriptor, place, 1)
"""
    + _PINNED
    + _HELD,
    "memory_watch_events": SYSCALL
    + """
# Events that nobody reads.
os.mkdir("d")
first, second = "d/" + "a" * 250, "d/" + "b" * 250
open(first, "w").close()
watchers = [libc.inotify_init1(0) for _ in range(20)]
watching = sum(each >= 0 and libc.inotify_add_watch(each, b"d", 0xC0) >= 0 for each in watchers)
if watching:
    for _ in range(scale * 1000):
        os.rename(first, second)
        os.rename(second, first)
held = watching * scale * 4000 * 512
"""
    + _HELD,
}

_UNSEEN = {
    "memory_page_tables_by_a_name": SYSCALL
    + """
# The kernel shows a process's name above the size of its page tables, in the same form.
libc.prctl(15, b"VmPTE:0 x", 0, 0, 0)
"""
    + _PAGE_TABLES,
    "memory_without_a_first_thread": SYSCALL
    + """
# Of a process whose first thread has ended, the kernel shows no memory where one looks first.
import _thread
read, write = os.pipe()
_thread.stack_size(1 << 20)
def hold():
    area = bytearray(scale * 12 << 20)
    for place in range(0, len(area), 4096):
        area[place] = 1
    os.write(write, b"%9d" % len(area))
    time.sleep(4)
    os._exit(0)
for _ in range(7):
    if os.fork() == 0:
        _thread.start_new_thread(hold, ())
        syscall(60, 0)
os.close(write)
held = sum(int(os.read(read, 9) or 0) for _ in range(7))
"""
    + _HELD,
}
"""What a supervisor doesn't see where it looks first."""

SCALE = "scale = 1\n"
"""Enough to be more than the limit, and not enough to harm a machine that has none."""

_MORE = replace(LIMITS, memory_mb=64)
"""So many interpreters take about half of it."""

ATTACKS = tuple(
    Attack(name, AttackClass.RESOURCES, SCALE + program, ANY_BUT_FAULT, limits=limits, wall=16)
    for programs, limits in ((_PROGRAMS, LIMITS), (_UNSEEN, _MORE))
    for name, program in programs.items()
)
