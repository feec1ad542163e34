"""One test per row of the table of semantics in `docs/sandbox.md`, at tiers 1 and 2."""

from __future__ import annotations

import re
import sys

import numpy
import pytest
import sympy

from cleaner_sandbox.node import files
from cleaner_sandbox.protocol.results import RunStatus, shorten
from tests.conftest import DOCS, Driver


def test_file_name_is_fixed_and_lines_are_the_programs_own(box: Driver) -> None:
    result = box.run("x = 1\n\nraise ValueError('no')")
    assert result.exception is not None
    assert (result.exception.type, result.exception.message, result.exception.line) == ("ValueError", "no", 3)
    assert 'File "main.py", line 3, in <module>' in result.exception.traceback
    assert "raise ValueError('no')" in result.exception.traceback


def test_future_imports_may_stand_first(box: Driver) -> None:
    assert box.run("from __future__ import annotations\nprint(1)").output == "1\n"
    assert box.run("from __future__ import annotations\n2", echo_last_expression=True).output == "2\n"


def test_harness_frames_are_dropped(box: Driver) -> None:
    result = box.run("def f():\n    return 1 / 0\nf()")
    assert result.exception is not None
    assert re.findall(r'File "([^"]+)"', result.exception.traceback) == ["main.py", "main.py"]


def test_syntax_errors_have_their_line_and_no_frames(box: Driver) -> None:
    result = box.run("x = 1\ny = (")
    assert result.exception is not None
    assert (result.status, result.exception.type, result.exception.line) == (RunStatus.ERROR, "SyntaxError", 2)
    assert "cleaner_sandbox" not in result.exception.traceback


def test_library_paths_are_shortened(box: Driver) -> None:
    result = box.run("import json\njson.loads('{')")
    assert result.exception is not None
    assert 'File "json/decoder.py"' in result.exception.traceback
    assert result.exception.line == 2
    result = box.run("import numpy\nnumpy.linalg.inv(numpy.zeros((2, 2)))")
    assert result.exception is not None
    assert 'File "numpy/linalg/' in result.exception.traceback


def test_long_tracebacks_lose_their_middle_and_keep_their_last_line(box: Driver) -> None:
    code = (
        "\n".join(f"def f{i}(): f{i + 1}()  # {'x' * 200}" for i in range(90))
        + "\ndef f90(): raise KeyError('end')\nf0()"
    )
    result = box.run(code)
    assert result.exception is not None
    trace = result.exception.traceback
    assert trace.startswith("Traceback (most recent call last)")
    assert trace.rstrip().endswith("KeyError: 'end'")
    assert "characters shown]" in trace
    assert len(trace) < 9_000


def test_cut_output_says_both_lengths(box: Driver) -> None:
    result = box.run("print('a' * 100_000)")
    assert (result.status, len(result.output), result.output_length) == (RunStatus.OK, 65_536, 100_001)
    assert "of 100001 characters shown" in shorten(result.output, 65_536, result.output_length)


def test_partial_output_is_kept_at_a_timeout(box: Driver) -> None:
    result = box.run("print('before', end='')\nwhile True: pass", cpu_seconds=0.2)
    assert (result.status, result.output) == (RunStatus.TIMEOUT, "before")


@pytest.mark.parametrize(
    ("code", "limits", "status", "sentence"),
    [
        ("while True: pass", {"cpu_seconds": 0.2}, RunStatus.TIMEOUT, "it ran into its limit of CPU time"),
        (
            "import time; time.sleep(9)",
            {"wall_seconds": 0.2},
            RunStatus.TIMEOUT,
            "it ran into its limit of elapsed time",
        ),
        ("print('x' * 5000)", {"output_bytes": 1000}, RunStatus.OUTPUT_LIMIT, "it printed more than its output limit"),
    ],
)
def test_each_limit_has_one_constant_sentence(
    box: Driver, code: str, limits: dict[str, float], status: RunStatus, sentence: str
) -> None:
    first, second = box.run(code, **limits), box.run(code, **limits)
    assert first.status is status
    assert first.explanation == f"The program was stopped: {sentence}."
    assert first.explanation == second.explanation
    assert not re.search(r"\d", first.explanation)


def test_last_expression_is_echoed_once_and_only_if_asked(box: Driver) -> None:
    code = "def f():\n    print('called')\n    return [1]\nf()"
    assert box.run(code).output == "called\n"
    assert box.run(code, echo_last_expression=True).output == "called\n[1]\n"
    assert box.run("1\nNone", echo_last_expression=True).output == ""
    assert box.run("x = 5", echo_last_expression=True).output == ""
    assert box.run("1/0", echo_last_expression=True).status is RunStatus.ERROR


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("import sys; sys.exit()", RunStatus.OK, 0),
        ("import sys; sys.exit(0)", RunStatus.OK, 0),
        ("raise SystemExit(3)", RunStatus.ERROR, 3),
        ("import sys; sys.exit(256)", RunStatus.OK, 0),
        ("import sys; sys.exit(2**70)", RunStatus.ERROR, 255),
        ("import sys; sys.exit(True)", RunStatus.ERROR, 1),
        ("import os; os._exit(0)", RunStatus.OK, 0),
        ("import os; os._exit(9)", RunStatus.ERROR, 9),
    ],
)
def test_exit_codes_are_as_the_interpreter_reads_them(
    box: Driver, code: str, status: RunStatus, exit_code: int
) -> None:
    outcome = box.outcome(code)
    assert (outcome.result.status, outcome.exit_code) == (status, exit_code)
    if status is RunStatus.ERROR:
        assert outcome.result.explanation == f"The program exited with code {exit_code}."


def test_exit_with_a_text_is_an_error_and_shows_it(box: Driver) -> None:
    result = box.run("import sys; sys.exit('no more')")
    assert (result.status, result.stderr) == (RunStatus.ERROR, "no more\n")


def test_stderr_alone_is_no_error(box: Driver) -> None:
    result = box.run("import sys, warnings\nwarnings.warn('hm')\nprint('Error!', file=sys.stderr)")
    assert result.status is RunStatus.OK
    assert result.stderr.endswith("Error!\n")


def test_hashes_and_generators_are_seeded(box: Driver) -> None:
    code = "import random, numpy\nprint(hash('a'), random.random(), numpy.random.rand(), numpy.random.randint(9))"
    first = box.run(code)
    assert first.status is RunStatus.OK
    assert box.run(code).output == first.output
    assert box.run(code, seed=7).output == box.run(code, seed=7).output != first.output
    for seed in (-1, 2**70):
        assert box.run(code, seed=seed).status is RunStatus.OK


def test_a_seed_gives_what_it_gives_elsewhere(box: Driver) -> None:
    import random

    expected = f"{random.Random(5).random()} {numpy.random.RandomState(5).rand()}\n"
    assert box.run("import random, numpy\nprint(random.random(), numpy.random.rand())", seed=5).output == expected


def test_input_without_stdin_is_an_eof_error(box: Driver) -> None:
    result = box.run("input()")
    assert result.exception is not None
    assert result.exception.type == "EOFError"


def test_stdin_is_given(box: Driver) -> None:
    code = "import sys\nprint(input(), sys.stdin.read(), end='')"
    assert box.run(code, stdin="a\nb\nc").output == "a b\nc"
    assert box.run("import sys; print(len(sys.stdin.buffer.read()))", stdin=b"\xff" * 300_000).output == "300000\n"


def test_stdin_is_given_whole_whatever_the_run_may_store(box: Driver) -> None:
    count = "import sys; print(len(sys.stdin.read()))"
    assert box.run(count, stdin="x" * 3_000_000, disk_mb=1).output == "3000000\n"


def test_stdin_that_no_program_could_be_given_is_refused(box: Driver) -> None:
    assert box.run("print(1)", stdin="\ud800").status is RunStatus.REFUSED
    bytes_of = "import sys; print(sys.stdin.buffer.read())"
    assert box.run(bytes_of, stdin="\udcff").output == "b'\\xff'\n"  # how Python spells a byte that is no text


def test_matplotlib_would_draw_without_a_screen(box: Driver) -> None:
    assert box.run("import os; print(os.environ['MPLBACKEND'])").output == "Agg\n"


def test_blas_has_one_thread(box: Driver) -> None:
    assert box.run("import os; print(os.environ['OPENBLAS_NUM_THREADS'])").output == "1\n"
    assert (
        box.run("import numpy\na = numpy.ones((300, 300))\nprint((a @ a).sum())", processes=1).output == "27000000.0\n"
    )


def test_invalid_bytes_are_replaced(box: Driver) -> None:
    result = box.run("import os; os.write(1, b'a\\xff\\x00b'); os.write(2, b'\\xc3')")
    assert (result.status, result.output, result.stderr) == (RunStatus.OK, "a\ufffd\x00b", "\ufffd")


def test_namespace_holds_what_a_script_has(box: Driver) -> None:
    names = box.run("print(sorted(globals()), __name__)").output
    assert (
        names
        == "['__builtins__', '__doc__', '__file__', '__loader__', '__name__', '__package__', '__spec__'] __main__\n"
    )
    for name in ("numpy", "json", "random"):
        result = box.run(f"{name}.x", environment="science")
        assert result.exception is not None
        assert result.exception.type == "NameError"


def test_main_module_is_the_programs_own(box: Driver) -> None:
    code = """
import pickle, dataclasses, __main__
@dataclasses.dataclass
class Point:
    x: int
print(pickle.loads(pickle.dumps(Point(3))), __main__.Point is Point)
if __name__ == "__main__":
    print("guard")
"""
    assert box.run(code).output == "Point(x=3) True\nguard\n"


def test_versions_are_reported(box: Driver) -> None:
    python = sys.version.split()[0]
    assert box.run("print(1)").versions == {"python": python}
    versions = box.run("import sympy").versions
    assert versions["numpy"] == numpy.__version__
    assert versions["sympy"] == sympy.__version__


def test_memory_error_is_an_exception(box: Driver) -> None:
    result = box.run("try:\n    x = bytearray(10**10)\nexcept MemoryError:\n    print('caught')")
    assert (result.status, result.output) == (RunStatus.OK, "caught\n")
    result = box.run("x = []\nwhile True: x.append(bytearray(10**7))", memory_mb=100)
    assert result.exception is not None
    assert (result.status, result.exception.type) == (RunStatus.ERROR, "MemoryError")


def test_a_tree_that_holds_too_much_is_stopped(t2: Driver) -> None:
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(os.urandom(1)) * (40 << 20)
        time.sleep(20)
time.sleep(20)
"""
    result = t2.run(code, memory_mb=100)
    assert (result.status, result.explanation) == (
        RunStatus.MEMORY,
        "The program was stopped: it ran into its memory limit.",
    )


def test_memory_of_executed_programs_counts(t2: Driver) -> None:
    code = """
import subprocess
many = [subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=30M", "count=100000"]) for _ in range(8)]
many[0].wait()
"""
    assert t2.run(code, memory_mb=100, cpu_seconds=30).status is RunStatus.MEMORY


def test_atexit_threads_and_open_files_end_as_in_a_script(box: Driver) -> None:
    code = """
import atexit, threading, time
atexit.register(print, "atexit")
def later():
    time.sleep(0.05)
    print("thread")
threading.Thread(target=later).start()
f = open("left_open.txt", "w")
f.write("written")
print("main")
"""
    outcome = box.outcome(code, fetch=("left_open.txt",))
    assert outcome.result.output == "main\nthread\natexit\n"
    assert outcome.files == {"left_open.txt": b"written"}


@pytest.mark.parametrize(
    "end",
    [
        "sys.stdout = None",
        "sys.stderr = None",
        "del sys.stdout",
        "sys.stdout.close()",
        "sys.stderr.close()",
        "sys.stdout.flush(); os.close(1)",
        "del sys.modules['__main__']",
    ],
)
def test_a_program_may_take_away_its_own_outputs(box: Driver, end: str) -> None:
    result = box.run(f"import os, sys\nprint(1)\n{end}")
    assert (result.status, result.output) == (RunStatus.OK, "1\n")


def test_an_exception_is_not_described_in_a_file_of_the_programs_own(box: Driver) -> None:
    code = "import os\nos.closerange(3, 64)\nfile = open('own', 'w')\nfile.write('hello')\nfile.flush()\n1 / 0"
    outcome = box.outcome(code, fetch=("own",))
    assert outcome.files == {"own": b"hello"}
    assert outcome.result.status is RunStatus.ERROR
    assert outcome.result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_programs_own_exception_hook_runs_and_hides_nothing(box: Driver) -> None:
    result = box.run("import sys\nsys.excepthook = lambda *a: print('hooked')\n1/0")
    assert (result.status, result.output) == (RunStatus.ERROR, "hooked\n")
    assert result.exception is not None


@pytest.mark.parametrize(
    "code", ["", "\n\n", "# nothing", "\ufeffprint(1)", "print(1)\r\nprint(2)\r\n", "if 1:\n\tprint(3)"]
)
def test_odd_but_valid_programs_run(box: Driver, code: str) -> None:
    assert box.run(code).status is RunStatus.OK


@pytest.mark.parametrize("code", ["\0", "\ud800", "(" * 100_000, "-" * 200_000 + "1", "x = '" + "\\" * 7])
def test_programs_that_do_not_parse_are_errors(box: Driver, code: str) -> None:
    assert box.run(code).status in (RunStatus.ERROR, RunStatus.CRASHED)


def test_ten_megabytes_of_code_run(box: Driver) -> None:
    assert box.run("#" * 99 + "\n" + "x = '" + "y" * 10_000_000 + "'\nprint(len(x))").output == "10000000\n"


def test_async_and_multiprocessing(t2: Driver) -> None:
    assert t2.run("import asyncio\nasync def f(): return 3\nprint(asyncio.run(f()))").output == "3\n"
    code = """
import multiprocessing, subprocess, sys
def f(x): return x * x
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(f, [1, 2, 3]))
    print(subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout, end="")
    print(subprocess.run([sys.executable, "-c", "import numpy; print(numpy.eye(1))"], capture_output=True, text=True))
"""
    result = t2.run(code, environment="science", memory_mb=1000)
    assert result.output.startswith("[1, 4, 9]\nhi\n")
    assert "stdout='[[1.]]\\n'" in result.output


def test_processes_share_memory_in_files(t2: Driver) -> None:
    code = """
import multiprocessing
from multiprocessing import shared_memory
def add(count, row, name):
    with count.get_lock(): count.value += 1
    row[0] = 2.5
    block = shared_memory.SharedMemory(name)
    block.buf[0] = 3
    block.close()
count, row = multiprocessing.Value("i", 1), multiprocessing.Array("d", 2)
block = shared_memory.SharedMemory(create=True, size=4096)
child = multiprocessing.get_context("fork").Process(target=add, args=(count, row, block.name))
child.start()
child.join()
print(count.value, row[:], block.buf[0])
block.close()
block.unlink()
"""
    assert t2.run(code).output == "2 [2.5, 0.0] 3\n"


def test_memory_is_mapped_privately_or_from_a_file(box: Driver) -> None:
    code = """
import mmap
for flags in (mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS):
    try: print(len(mmap.mmap(-1, 4096, flags)))
    except OSError as error: print(error)
with open("f", "wb+") as file:
    file.truncate(4096)
    print(len(mmap.mmap(file.fileno(), 4096)))
"""
    assert box.run(code).output == "4096\n[Errno 12] Cannot allocate memory\n4096\n"


def test_devices_are_what_they_are_and_zero_is_only_read(box: Driver) -> None:
    code = """
for name in ("null", "full", "random", "urandom"):
    open(f"/dev/{name}", "rb+").close()
open("/dev/null", "w").write("gone")
print(open("/dev/zero", "rb").read(3))
open("/dev/zero", "rb+")
"""
    result = box.run(code)
    assert result.output == r"b'\x00\x00\x00'" + "\n"
    assert result.exception is not None
    assert result.exception.type == "PermissionError"


def test_no_memory_is_dumped_through_a_pipe_either(box: Driver) -> None:
    """Which the kernel leaves out for this limit alone: none at all would not do."""
    assert box.run("import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))").output == "(1, 1)\n"


def test_threads_but_no_processes_at_tier_1(t1: Driver) -> None:
    assert (
        t1.run("import threading\nt = threading.Thread(target=print, args=(1,)); t.start(); t.join()").output == "1\n"
    )
    for code in ("import os; os.fork()", "import subprocess; subprocess.run(['echo'])"):
        result = t1.run(code)
        assert result.exception is not None
        assert result.exception.type == "PermissionError"


def test_files_go_in_and_come_out(box: Driver) -> None:
    outcome = box.outcome(
        "import os\nos.makedirs('out')\nopen('out/b.bin', 'wb').write(open('in/a.bin', 'rb').read()[::-1])\n"
        "os.symlink('/etc/passwd', 'link')\nos.mkdir('folder')\n1/0",
        files={"in/a.bin": b"abc"},
        fetch=("out/b.bin", "link", "folder", "missing", "in/a.bin"),
    )
    assert outcome.result.status is RunStatus.ERROR
    assert outcome.files == {"out/b.bin": b"cba", "in/a.bin": b"abc"}


def test_folders_and_patterns_come_out_and_no_link_is_followed(box: Driver) -> None:
    code = """
import os
for name in ("a.csv", "b.csv", "c.txt", "out/d.csv", "out/deep/e.csv", "out/deep/f.txt", "odd*", "oddly"):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "w").write(name)
os.symlink("/etc", "out/etc")
os.symlink("/etc/passwd", "p.csv")
os.symlink("out", "alias")
os.mkdir("empty")
os.mkdir("folder.csv")
"""
    for fetch, names in (
        ("out", {"out/d.csv", "out/deep/e.csv", "out/deep/f.txt"}),
        ("./out/", {"out/d.csv", "out/deep/e.csv", "out/deep/f.txt"}),
        ("*.csv", {"a.csv", "b.csv"}),
        ("[!a].csv", {"b.csv"}),
        ("**/*.csv", {"a.csv", "b.csv", "out/d.csv", "out/deep/e.csv"}),
        ("o*/**", {"out/d.csv", "out/deep/e.csv", "out/deep/f.txt"}),
        ("out/*/?.txt", {"out/deep/f.txt"}),
        ("odd*", {"odd*"}),  # the very name comes before the pattern
        ("alias", set()),
        ("alias/*", set()),
        ("out/etc/*", set()),
        ("*/etc/passwd", set()),
        ("empty", set()),
        ("none*", set()),
    ):
        outcome = box.outcome(code, fetch=(fetch,))
        assert outcome.result.status is RunStatus.OK, outcome.result
        assert outcome.files == {name: name.encode() for name in names}, fetch
        assert outcome.files_left_out == 0
    assert len(box.outcome(code, fetch=("a.csv", "*.csv", "**")).files) == 8


def test_what_a_pattern_names_is_bounded_like_single_files(t2: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = t2.outcome("for n in range(20): open(f'{n:02}', 'wb').write(bytes(1 << 20))", fetch=("*",))
    assert sorted(outcome.files) == [f"{number:02}" for number in range(16)]
    assert outcome.files_left_out == 4
    assert t2.outcome("open('f', 'wb').write(bytes(20 << 20))", fetch=("f", "none")).files_left_out == 1
    deep = t2.outcome("import os\nos.makedirs('d/' * 70)\nopen('d/' * 70 + 'f', 'w').close()", fetch=("**",))
    assert (deep.files, deep.files_left_out) == ({}, 1)
    monkeypatch.setattr(files, "MOST_LOOKED_AT", 10)
    many = t2.outcome("for n in range(20): open(f'{n:02}', 'w').close()", fetch=("*",))
    assert (len(many.files), many.files_left_out) == (10, 1)
    monkeypatch.setattr(files, "MOST_NAMES", 3)
    few = t2.outcome("for n in range(8): open(str(n), 'w').close()", fetch=("*",))
    assert (sorted(few.files), few.files_left_out) == (["0", "1", "2"], 5)


def test_modules_in_the_working_folder_can_be_imported(box: Driver) -> None:
    files = {"helper.py": b"x = 41", "pack/__init__.py": b"", "pack/more.py": b"from helper import x\ny = x + 1"}
    result = box.run("import helper, pack.more\nprint(helper.x, pack.more.y, 'helper' in dir())", files=files)
    assert result.output == "41 42 True\n"
    assert box.run("open('own.py', 'w').write('z = 1')\nimport own\nprint(own.z)").output == "1\n"
    assert box.run("import os, sys; print(sys.path[0] == os.getcwd())").output == "True\n"
    # What the interpreter has loaded already is not looked for again; the rest is, as everywhere else.
    shadows = {"json.py": b"x = 1", "wave.py": b"x = 2"}
    assert box.run("import json, wave\nprint(hasattr(json, 'x'), wave.x)", files=shadows).output == "False 2\n"
    failed = box.run("import helper", files={"helper.py": b"\n1 / 0"})
    assert failed.exception is not None
    assert 'File "helper.py", line 2' in failed.exception.traceback


def test_home_and_temporary_files_are_the_runs_own(box: Driver) -> None:
    code = """
import os, tempfile
open(os.path.expanduser("~/x"), "w").close()
print(os.path.expanduser("~") == os.getcwd(), os.listdir("."))
with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    file.write("here")
    file.flush()
    print(open(file.name).read(), os.path.dirname(file.name) != os.getcwd())
"""
    assert box.run(code).output == "True ['x']\nhere True\n"


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a\0b", ".", "x" * 2000, "x" * 256, "\ud800"])
def test_file_names_outside_the_folder_are_refused(box: Driver, name: str) -> None:
    assert box.run("print(1)", files={name: b""}).status is RunStatus.REFUSED
    assert box.run("print(1)", fetch=(name,)).status is RunStatus.REFUSED


@pytest.mark.skipif(not DOCS.exists(), reason="the pages are in the repository, not in the archive of the package")
def test_the_table_in_the_docs_names_these_tests() -> None:
    text = (DOCS / "sandbox.md").read_text().partition("\n## Bash\n")[0]
    rows = re.findall(r"`(test_\w+)`", text)
    assert rows
    here = {name for name in globals() if name.startswith("test_")}
    assert {name for name in rows if not re.match(r"test_x\d", name)} <= here


@pytest.mark.parametrize(("code", "status"), [("exit()", 0), ("quit(3)", 3), ("exit('why')", 1)])
def test_finding_a_program_may_end_itself_as_in_any_interpreter(box: Driver, code: str, status: int) -> None:
    outcome = box.outcome(f"print('before')\n{code}\nprint('after')")
    assert (outcome.result.output, outcome.exit_code) == ("before\n", status)


def test_finding_help_is_there(box: Driver) -> None:
    assert "Return the number of items" in box.run("help(len)").output
