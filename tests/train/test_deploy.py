"""The starts for clusters: they agree with the recipes that they name, and give `cleaner train` what it takes. No
cluster is asked: `srun`, `scontrol` and `ray` are stand-ins that write down how they were called."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from benchmarks.training_scale import table
from cleaner_rl.cli import main
from cleaner_rl.train import Recipe, read_recipe
from cleaner_rl.train.launch.node import node_config
from cleaner_rl.train.recipe.settings import SandboxSettings
from cleaner_rl.train.verl.settings import devices_of
from cleaner_sandbox import NodeConfig, open_sandbox
from cleaner_sandbox.cli.serve import serve
from cleaner_sandbox.service import ServiceConfig

ROOT = Path(__file__).parents[2]
DEPLOY, RECIPES = ROOT / "deploy", ROOT / "recipes"
SANDBOX = ROOT / "packages" / "cleaner-sandbox" / "deploy"
SCRIPTS = [*DEPLOY.rglob("*.sh"), *DEPLOY.rglob("*.sbatch")]
STARTS = {"one-node": "saar-4b", "eight-nodes": "rstar2-14b"}
# KubeRay's types, ray.io/v1: what it would refuse, or drop without a word.
JOB = {"entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"}
CLUSTER = {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}
STAND_IN = """#!/usr/bin/env bash
echo "$(basename "$0")$(printf '\\t%s' "$@")" >> "$CALLS"
[ -z "${GLOO_SOCKET_IFNAME:-}" ] || echo "$GLOO_SOCKET_IFNAME" >> "$CALLS.networks"
[ -z "${RAY_AUTH_TOKEN_PATH:-}" ] || echo "$RAY_AUTH_MODE $(stat -c %a "$RAY_AUTH_TOKEN_PATH")" >> "$CALLS.tokens"
case "$(basename "$0") $*" in
"ip -o addr show") printf '1: lo    inet 127.0.0.1/8 scope\\n2: eth7    inet 10.0.0.7/24 brd\\n' ;;
"scontrol show hostnames gpus") for n in $(seq "$GPU_NODES"); do echo "gpu$n"; done ;;
"scontrol show hostnames sandboxes") echo cpu1; echo cpu2 ;;
*hostname*) echo "10.0.0.1 fe80::1" ;;
*"ray list nodes"*)
    # They are there once both parts of the cluster were started.
    [ "$(grep -c 'ray	start' "$CALLS")" = 2 ] && for n in $(seq "$GPU_NODES"); do echo '"node_id": "x"'; done ;;
srun*"ray start"*|*"sandbox serve"*) exec sleep 60 ;;
# Training would wait for the sandbox; here, until its start was written down.
srun*"cleaner train"*) until grep -q 'sandbox	serve' "$CALLS"; do sleep 0.05; done ;;
esac
"""


def composed(command: str) -> Recipe:
    """What `cleaner train …` makes of the last part of a command line, and that it can be shown."""
    words = shlex.split(command)
    arguments = words[words.index("train") + 1 :]
    file = str(ROOT / arguments[0])
    shown = CliRunner().invoke(main, ["train", file, *arguments[1:], "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)
    return read_recipe(file, arguments[2::2])


def pods(spec: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Of a cluster: how many of each pod, and its one container."""
    groups = [(1, spec["headGroupSpec"]), *((each["replicas"], each) for each in spec.get("workerGroupSpecs", []))]
    return [(count, group["template"]["spec"]["containers"][0]) for count, group in groups]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_one(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=20)


@pytest.mark.parametrize(("size", "name"), STARTS.items())
def test_kubernetes_has_the_gpus_that_the_recipe_wants(size: str, name: str) -> None:
    job = yaml.safe_load((DEPLOY / f"kubernetes/train-{size}.yaml").read_text())
    recipe = composed(job["spec"]["entrypoint"])
    assert (job["apiVersion"], job["kind"], recipe.name) == ("ray.io/v1", "RayJob", name)
    assert set(job["spec"]) <= JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) <= CLUSTER
    assert set(cluster["headGroupSpec"]) == HEAD
    with_gpus = []
    for group in cluster.get("workerGroupSpecs", []):
        assert set(group) == WORKERS
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    for count, container in pods(cluster):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        gpus = container["resources"]["limits"].get("nvidia.com/gpu", 0)
        with_gpus += [gpus] * count if gpus else []
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert {"/shared", "/etc/cleaner", "/dev/shm"} == mounts
        assert {"name": "HF_HOME", "value": "/shared/huggingface"} in container["env"]
        assert container["envFrom"] == [{"secretRef": {"name": "training-keys", "optional": True}}]
    assert with_gpus == [devices_of(recipe).per_node] * devices_of(recipe).nodes
    # KubeRay runs the entrypoint on the head, and a cold start uses the GPUs of the machine that it is called on.
    assert pods(cluster)[0][1]["resources"]["limits"]["nvidia.com/gpu"] == devices_of(recipe).per_node
    # Every number in it is a text where KubeRay wants one.
    for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_kubernetes_calls_the_sandbox_where_it_serves() -> None:
    nodes = {each["kind"]: each for each in yaml.safe_load_all((SANDBOX / "kubernetes/nodes.yaml").read_text())}
    service = nodes["Service"]
    address = f"dns://{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local:8089"
    for size in STARTS:
        job = yaml.safe_load((DEPLOY / f"kubernetes/train-{size}.yaml").read_text())
        recipe = composed(job["spec"]["entrypoint"])
        assert (recipe.sandbox.addresses, recipe.sandbox.token_file) == ([address], "/etc/cleaner/token")


def test_the_volume_holds_what_every_run_keeps() -> None:
    claimed = re.search(r"storage: (\d+)Ti", (DEPLOY / "kubernetes/README.md").read_text())
    (row,) = [line for line in table().splitlines() if "of all that stay" in line]
    kept = [int(each.replace(",", "")) for each in re.findall(r"/ ([\d,]+)", row)]
    assert claimed is not None
    assert 1.5 * max(kept) * 1e9 < int(claimed[1]) * 2**40


def test_ray_is_the_version_that_was_tried() -> None:
    tried = re.search(r"^ray==(.*)$", (ROOT / "constraints/engine.txt").read_text(), re.MULTILINE)
    assert tried is not None
    for size in STARTS:
        job = yaml.safe_load((DEPLOY / f"kubernetes/train-{size}.yaml").read_text())
        assert job["spec"]["rayClusterSpec"]["rayVersion"] == tried[1]


def called(script: Path, *arguments: str, folder: Path, **variables: str) -> list[list[str]]:
    """The commands that a script gave to the stand-ins."""
    (folder / "bin").mkdir()
    for name in ("srun", "scontrol", "ray", "ip"):
        (folder / "bin" / name).write_text(STAND_IN)
        (folder / "bin" / name).chmod(0o755)
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
    }
    subprocess.run(
        ["bash", str(script), *arguments], cwd=folder, env=environment, check=True, timeout=30, capture_output=True
    )
    return [line.split("\t") for line in (folder / "calls").read_text().splitlines()]


@pytest.mark.parametrize(("size", "name"), STARTS.items())
def test_slurm_has_the_gpus_that_the_recipe_wants_and_starts_it(size: str, name: str, tmp_path: Path) -> None:
    script = DEPLOY / f"slurm/{size}.sbatch"
    asked = r"^#SBATCH --(nodes|gpus-per-node|cpus-per-task)=(\d+)$"
    wanted, sandboxes = (dict(re.findall(asked, part, re.M)) for part in script.read_text().split("hetjob"))
    (tmp_path / "deploy").symlink_to(DEPLOY)
    calls = called(
        script,
        f"recipes/{name}.yaml",
        "--set",
        "run.steps=3",
        folder=tmp_path,
        GPU_NODES=wanted["nodes"],
        SLURM_SUBMIT_DIR=str(tmp_path),
        SLURM_JOB_ID="7",
        SLURM_JOB_NODELIST_HET_GROUP_0="gpus",
        SLURM_JOB_NODELIST_HET_GROUP_1="sandboxes",
        SLURM_CPUS_PER_TASK_HET_GROUP_0=wanted["cpus-per-task"],
        SLURM_CPUS_PER_TASK_HET_GROUP_1=sandboxes["cpus-per-task"],
    )
    (trained,) = [call for call in calls if "train" in call]
    recipe = composed(shlex.join(trained))
    assert (recipe.name, recipe.run.steps) == (name, 3)
    assert recipe.sandbox.addresses == ["http://cpu1:8089", "http://cpu2:8089"]
    devices = devices_of(recipe)
    assert (devices.nodes, devices.per_node) == (int(wanted["nodes"]), int(wanted["gpus-per-node"]))
    started = [call for call in calls if "start" in call]
    assert len(started) == (2 if devices.nodes > 1 else 0)
    assert all(f"--cpus-per-task={wanted['cpus-per-task']}" in call for call in [trained, *started])
    tasks = [int(word.removeprefix("--ntasks=")) for call in started for word in call if word.startswith("--ntasks=")]
    assert sum(tasks) == (devices.nodes if started else 0)
    (served,) = [call for call in calls if "serve" in call]
    assert {"--het-group=1", "--ntasks=2", f"--cpus-per-task={sandboxes['cpus-per-task']}"} <= set(served)
    assert served[served.index("--slots") + 1] == str(2 * int(sandboxes["cpus-per-task"]))
    assert not [*tmp_path.glob(".cleaner-*")], "the token outlives the job"
    tokens = tmp_path / "calls.tokens"
    assert set(tokens.read_text().splitlines() if started else []) == ({"token 600"} if started else set())


def test_a_sandbox_pod_has_the_memory_that_all_it_holds_may_come_to() -> None:
    documents = yaml.safe_load_all((SANDBOX / "kubernetes/nodes.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    (node,) = pod["containers"]
    (scratch,) = [each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each]
    assert scratch["medium"] == "Memory", "or it is not in the sum"
    with serve.make_context("serve", [each for each in node["args"] if "--token-file" not in each]) as context:
        given = context.params
    slots, sessions = given["slots"] * given["memory_mb"], given["session_memory_mb"]
    requests = 2 * ServiceConfig(NodeConfig()).most_held_mb  # arriving, and being answered
    itself = 1024  # front, keeper, zygotes and supervisors: 207 MB of 16 slots when it has started
    assert slots + sessions + mebibytes(scratch["sizeLimit"]) + requests + itself == mebibytes(
        node["resources"]["limits"]["memory"]
    )
    assert node["resources"]["requests"]["memory"] == node["resources"]["limits"]["memory"]


def test_a_node_is_told_how_many_its_sessions_may_be_and_how_much_they_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []

    def supervisor(listening: socket, config: ServiceConfig) -> None:
        listening.close()
        told.extend((config.node.sessions, config.node.session_memory_mb))
        raise OSError("enough")

    monkeypatch.setattr("cleaner_sandbox.service.supervisor.Supervisor", supervisor)
    CliRunner().invoke(main, ["sandbox", "serve", "--port", "0", "--sessions", "512", "--session-memory-mb", "300"])
    assert told == [512, 300]


@pytest.mark.parametrize("size", STARTS)
def test_slurms_sandbox_machines_have_the_memory_of_a_node_with_its_defaults(size: str) -> None:
    part = (DEPLOY / f"slurm/{size}.sbatch").read_text().split("hetjob")[1]
    asked = dict(re.findall(r"^#SBATCH --(cpus-per-task|mem)=(\d+)G?$", part, re.M))
    config = NodeConfig(slots=2 * int(asked["cpus-per-task"]))
    holds = config.slots * config.limits.memory_mb + config.session_memory_mb + 2 * ServiceConfig(config).most_held_mb
    assert holds + 1024 <= 1024 * int(asked["mem"])


def mebibytes(quantity: str) -> int:
    """A quantity of Kubernetes, in Gi."""
    return 1024 * int(quantity.removesuffix("Gi"))


def test_a_node_has_two_slots_for_each_core_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert NodeConfig().slots == 6
    assert node_config(SandboxSettings()).slots == 6

    @asynccontextmanager
    async def node(config: NodeConfig) -> AsyncIterator[NodeConfig]:
        yield config

    async def slots_of_a_commands_own_node(asked: int | None) -> int:
        async with open_sandbox([], token=None, patience=1.0, slots=asked, sessions=1) as config:
            assert isinstance(config, NodeConfig)
            return config.slots

    monkeypatch.setattr("cleaner_sandbox.start.Node", node)
    assert [asyncio.run(slots_of_a_commands_own_node(asked)) for asked in (None, 5)] == [6, 5]


def test_a_ray_job_is_given_the_recipe_and_the_sandbox(tmp_path: Path) -> None:
    calls = called(
        DEPLOY / "ray/submit.sh",
        "http://head:8265",
        "recipes/rstar2-14b.yaml",
        "http://a:8089,ray:",
        folder=tmp_path,
        TOKEN_FILE="/shared/token",
    )
    (submitted,) = calls
    assert submitted[:5] == ["ray", "job", "submit", "--address", "http://head:8265"]
    assert f"--chdir={tmp_path}" in submitted
    recipe = composed(shlex.join(submitted))
    assert (recipe.sandbox.addresses, recipe.sandbox.token_file) == (["http://a:8089", "ray:"], "/shared/token")


@pytest.mark.parametrize(
    ("head", "role"), [("head", ["--head", "--port=6379"]), ("10.0.0.1", ["--address=10.0.0.1:6379"])]
)
def test_a_machine_joins_ray_with_a_token_and_in_the_network_of_its_address(
    head: str, role: list[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    script, options = DEPLOY / "ray/start.sh", {"folder": tmp_path, "RAY_AUTH_TOKEN_PATH": str(token)}
    calls = called(script, head, "10.0.0.7", "--block", **options)  # type: ignore[arg-type]
    (started,) = [call for call in calls if call[0] == "ray"]
    assert started == ["ray", "start", *role, "--node-ip-address=10.0.0.7", "--disable-usage-stats", "--block"]
    assert (tmp_path / "calls.networks").read_text().split() == ["eth7"]
    assert (tmp_path / "calls.tokens").read_text().splitlines()[-1] == "token 600"
