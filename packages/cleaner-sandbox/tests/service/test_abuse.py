"""A real node under many abuses at once: those who hold no token, and one who does. Another tenant notices nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SECONDS = 120
MEGABYTE = 1_048_576
TOKENS = {"alice": "alice-0123456789abcdef", "bob": "bob-0123456789abcdefgh"}
ADDRESSES = {"alice": "127.0.0.3", "bob": "127.0.0.2"}
SERVE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (700, 700))
from cleaner_sandbox.cli import sandbox as main
main()
"""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[int, int]]:
    """A node that holds few connections: its port, and the process that serves it."""
    tokens = folder / "tokens.toml"
    tokens.write_text("".join(f'[tokens.{name}]\ntoken = "{token}"\nrunning = 3\n' for name, token in TOKENS.items()))
    options = ["--port", "0", "--slots", "4", "--sessions", "8", "--token-file", str(tokens)]
    command = [sys.executable, "-c", SERVE, "serve", *options]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process,
        ThreadPoolExecutor(1) as reader,
    ):
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            reader.submit(process.stdout.read)
            (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield ready["address"][1], int(server)
        finally:
            process.kill()


def megabytes(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"there is no {field}")


@contextlib.contextmanager
def asked(port: int, who: str, path: str, body: bytes) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request, not read yet."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS, source_address=(ADDRESSES[who], 0))
    with contextlib.closing(caller):
        caller.request("POST", path, body, {"authorization": f"Bearer {TOKENS[who]}"})
        yield caller.getresponse()


def status(port: int, path: str, body: bytes) -> int:
    with asked(port, "alice", path, body) as answer:
        answer.read()
        return answer.status


def run(port: int, **call: Any) -> str:
    with asked(port, "alice", "/v1/run", json.dumps(call).encode()) as answer:
        return str(json.load(answer)["status"])


def endless(port: int, begin: bytes, more: bytes, most: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as caller, contextlib.suppress(OSError):
        caller.sendall(begin)
        for _ in range(most // len(more)):
            caller.sendall(more)


def unread_batch(port: int, done: threading.Event) -> list[str]:
    """The last characters of many outputs of a megabyte each, none of which is read before the other tenant is done."""
    code = "import sys\nsys.stdout.write('a' * 1_048_000 + '\U0001f600' + input())"
    batch = [{"type": "python", "solution": code, "input": str(number)} for number in range(150)]
    body = json.dumps({"type": "batch", "submissions": batch}).encode()
    with asked(port, "alice", "/run/long-batch", body) as answer:
        done.wait(SECONDS)
        return [each["stdout"][1_048_000:] for each in json.load(answer)["results"]]


def bobs_calls(port: int) -> list[str]:
    found = []
    for number in range(100):
        with asked(port, "bob", "/v1/run", json.dumps({"code": f"print({number})"}).encode()) as answer:
            found.append(f"{answer.status} {json.load(answer)['output'] if answer.status == 200 else ''}")
    return found


def test_finding_headers_connections_batches_and_large_requests_at_once_harm_no_other_tenant(tmp_path: Path) -> None:
    head = b"POST /v1/run HTTP/1.1\r\nhost: x\r\n"
    deep = ["d/" * 60 + f"f{number}" for number in range(4_000)]
    make_deep = "import os\nos.makedirs('d/' * 60)"
    done = threading.Event()
    with serving(tmp_path) as (port, server), contextlib.ExitStack() as held, ThreadPoolExecutor(16) as pool:
        before = megabytes(server, "VmRSS")
        for _ in range(500):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)).sendall(b"GET /")
        batch = pool.submit(unread_batch, port, done)
        abuses: list[tuple[Callable[..., Any], Any, Any]] = [
            (endless, (port, head, b"".join(b"X%06d: y\r\n" % n for n in range(5_000)), 40 * MEGABYTE), None),
            (endless, (port, head + b"x: ", b"y" * MEGABYTE, 40 * MEGABYTE), None),
            (endless, (port, head + b"transfer-encoding: chunked\r\n\r\n1;", b"y" * MEGABYTE, 40 * MEGABYTE), None),
            (status, (port, "/v1/runs", b'{"calls":[' + b'{"code":""},' * 500_000 + b'{"code":""}]}'), 413),
            (status, (port, "/v1/run", b'{"code":"","fetch":[' + b'"a",' * 1_000_000 + b'"a"]}'), 413),
            (status, (port, "/run", b'{"solution":"","type":"python","x":' + b"[" * 200_000), 400),
            (status, (port, "/v1/run", json.dumps({"code": "import os\n" * 500_000}).encode()), 200),
        ]
        asking = [(pool.submit(abuse, *arguments), expected) for abuse, arguments, expected in abuses]
        refused = pool.submit(run, port, code=make_deep, fetch=deep)
        fetched = pool.submit(run, port, code=make_deep, fetch=deep[:250])
        try:
            bob = bobs_calls(port)
        finally:
            done.set()
        assert bob == [f"200 {number}\n" for number in range(100)]
        assert [each.result(SECONDS) for each, _ in asking] == [expected for _, expected in asking]
        assert (refused.result(SECONDS), fetched.result(SECONDS)) == ("refused", "ok")
        assert batch.result(SECONDS) == [f"\U0001f600{number}" for number in range(150)]
        assert megabytes(server, "VmHWM") - before < 100
