"""Run programs in the sandbox over HTTP: `python examples/sandbox_client.py` starts a node, uses it and ends it."""

import json
import subprocess
import sys

from cleaner_sandbox import RunStatus
from cleaner_sandbox.client import SyncSandboxClient

SERVE = [sys.executable, "-m", "cleaner_sandbox", "serve", "--port", "0"]


def main():
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE) as node:
        try:
            host, port = json.loads(node.stdout.readline())["address"]
            with SyncSandboxClient(f"http://{host}:{port}") as client:
                result = client.run("print(6 * 7)").result
                print(f"one program: {result.status}, {result.output!r}")
                session = client.open_session()  # needs isolation tier T2, which root has
                checkpoint = session.run("numbers = [3, 1, 2]").checkpoint
                failed = session.run("numbers.clear(); numbers[0]").result  # leaves no trace
                print(f"{failed.exception.type}, a fault: {failed.status is RunStatus.FAULT}")
                session.run("numbers.clear()")
                session.rollback(checkpoint)
                print(f"after a rollback: {session.run('numbers').result.output!r}")
        finally:
            node.terminate()


if __name__ == "__main__":
    main()
