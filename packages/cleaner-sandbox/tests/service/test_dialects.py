"""The endpoints of code-judge and SandboxFusion on a real node, in the words that their clients know."""

from __future__ import annotations

import base64
from typing import Any

from cleaner_sandbox import Limits, Node, NodeConfig
from tests.serving import Caller, asynchronous, served

CONFIG = NodeConfig(slots=2, limits=Limits(cpu_seconds=1.0))


def submission(solution: str, **more: object) -> dict[str, object]:
    return {"type": "python", "solution": solution, **more}


@asynchronous
async def test_code_judge() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:
        assert await caller.get("/ping") == (200, "pong")
        assert await caller.get("/status") == (200, {"queue": 0, "num_workers": 2})

        _, right = await caller.post("/run", submission("print(int(input()) + 1)", input="8", sub_id="a"))
        cost = right.pop("cost")
        assert 0 < cost < 60
        expected = {"sub_id": "a", "success": True, "run_success": True, "stdout": "9\n", "stderr": "", "reason": ""}
        assert right == expected

        _, judged = await caller.post("/judge", submission("print(9)", expected_output=" 9 "))
        assert set(judged) == {"sub_id", "success", "run_success", "cost", "reason"}
        assert (judged["success"], judged["run_success"]) == (True, True)
        _, wrong = await caller.post("/judge", submission("print(8)", expected_output="9"))
        assert (wrong["success"], wrong["run_success"], wrong["reason"]) == (False, True, "")

        batch = {
            "type": "batch",
            "sub_id": "all",
            "submissions": [
                submission("print(1)", sub_id="first"),
                submission("print('before'); 1/0"),
                submission("while True: pass"),
                {"type": "cpp", "solution": "int main() {}"},
                submission("import sys; sys.exit(3)"),
                submission("print(2)", sub_id="last", options={"any": "thing"}),
            ],
        }
        for path in ("/run/batch", "/run/long-batch"):
            status, answer = await caller.post(path, batch)
            assert (status, answer["sub_id"]) == (200, "all")
            results = answer["results"]
            assert [each["sub_id"] for each in results] == ["first", None, None, None, None, "last"]
            assert [each["run_success"] for each in results] == [True, False, False, False, False, True]
            assert [each["reason"] for each in results] == ["", "", "worker_timeout", "invalid_input", "", ""]
            assert [each["stdout"] for each in results] == ["1\n", "before\n", "", "", "", "2\n"]
            assert results[1]["stderr"].endswith("ZeroDivisionError: division by zero\n")
        for path in ("/judge/batch", "/judge/long-batch"):
            _, answer = await caller.post(path, batch)
            assert [each["success"] for each in answer["results"]] == [True, False, False, False, False, True]
            assert "stdout" not in answer["results"][0]
        assert (await caller.post("/run/batch", {"type": "batch", "submissions": []}))[0] == 422
        assert (await caller.post("/run", {"type": "python"}))[0] == 400


@asynchronous
async def test_long_outputs_come_back_whole_and_are_judged_by_all_of_them() -> None:
    numbers = "".join(f"{number}\n" for number in range(20_000))
    code = "print(*range(20_000), sep='\\n')"
    async with Node(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:
        _, judged = await caller.post("/judge", submission(code, expected_output=numbers))
        assert (judged["success"], judged["run_success"]) == (True, True)
        _, judged = await caller.post("/judge", submission(code, expected_output=numbers[:65_536]))
        assert (judged["success"], judged["run_success"]) == (False, True)
        assert (await caller.post("/run", submission(code)))[1]["stdout"] == numbers
        _, ran = await caller.post("/run_code", {"language": "python", "code": code})
        assert ran["run_result"]["stdout"] == numbers


@asynchronous
async def test_sandbox_fusion_run_code() -> None:
    async with Node(CONFIG) as node, served(node) as (url, _), Caller(url) as caller:
        assert await caller.get("/v1/ping") == (200, "pong")

        async def run(code: str, **more: object) -> Any:
            status, body = await caller.post("/run_code", {"language": "python", "code": code, **more})
            assert status == 200
            return body

        right = await run("print(input())", stdin="hello", compile_timeout=10, run_timeout=2, memory_limit_MB=256)
        assert (right["status"], right["message"], right["compile_result"]) == ("Success", "", None)
        assert right["run_result"].pop("execution_time") > 0
        assert right["run_result"] == {"status": "Finished", "return_code": 0, "stdout": "hello\n", "stderr": ""}

        failed = await run("import sys; print('x'); sys.exit(3)")
        assert (failed["status"], failed["run_result"]["return_code"]) == ("Failed", 3)
        raised = await run("1/0")
        assert (raised["status"], raised["run_result"]["status"]) == ("Failed", "Finished")
        assert "ZeroDivisionError" in raised["run_result"]["stderr"]
        crashed = await run("import os; os.kill(os.getpid(), 11)")
        assert (crashed["status"], crashed["run_result"]["status"]) == ("Failed", "Finished")
        assert crashed["run_result"]["return_code"] != 0
        endless = await run("print('so far', flush=True)\nwhile True: pass", run_timeout=0.5)
        assert (endless["status"], endless["run_result"]["status"]) == ("Failed", "TimeLimitExceeded")
        assert endless["run_result"]["stdout"] == "so far\n"
        hungry = await run("x = bytearray(10**9)", memory_limit_MB=64)
        assert (hungry["status"], hungry["run_result"]["status"]) == ("Failed", "Finished")

        content = base64.b64encode(b"\x00data").decode()
        files = await run(
            "open('out.bin', 'wb').write(open('in.bin', 'rb').read() * 2)",
            files={"in.bin": content, "nothing": None},
            fetch_files=["out.bin", "absent"],
        )
        assert files["files"] == {"out.bin": base64.b64encode(b"\x00data" * 2).decode()}
        shell = await run("cat in > out; exit 4", language="bash", files={"in": content}, fetch_files=["out"])
        assert (shell["status"], shell["run_result"]["return_code"]) == ("Failed", 4)
        assert shell["files"] == {"out": content}
        assert (await caller.post("/run_code", {"language": "go", "code": "x"}))[0] == 422


@asynchronous
async def test_finding_cells_that_fill_the_memory_of_their_session_are_no_sandbox_error() -> None:
    config = NodeConfig(slots=1, session_memory_mb=300)
    async with Node(config) as node, served(node) as (url, _), Caller(url) as caller:
        cells = [f"x = b'{number}' * ({size} << 20)" for number, size in enumerate([100] * 5 + [400])] + ["x[:1]"]
        status, answer = await caller.post("/run_jupyter", {"cells": cells, "total_timeout": 60})
        assert (status, answer["status"], len(answer["cells"])) == (200, "Success", 7)
        assert answer["cells"][5]["error"][0]["ename"] == "memory"
        assert answer["cells"][6]["stdout"] == "b'4'\n"
