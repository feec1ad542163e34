"""The manifests say what they promise, and the node takes the arguments that they give it. No cluster is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cleaner_sandbox import NodeConfig
from cleaner_sandbox.cli.serve import serve
from cleaner_sandbox.on_ray import options_for

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"


def manifests() -> dict[str, Any]:
    found = [each for path in FOLDER.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    return {each["kind"]: each for each in found}


def test_the_container_takes_its_arguments_and_no_privilege() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    with serve.make_context("serve", [each for each in node["args"] if "--token-file" not in each]) as context:
        drain, slots = context.params["drain_seconds"], context.params["slots"]
    assert pod["terminationGracePeriodSeconds"] > drain
    assert int(node["resources"]["limits"]["cpu"]) * 2 == slots
    assert pod["securityContext"]["runAsNonRoot"]
    assert node["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert "runtimeClassName" not in pod, "an ordinary pod starts everywhere; gVisor has no landlock"


def test_finding_the_rights_of_tier_2_are_the_same_wherever_they_are_named() -> None:
    node = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["node"]
    pod = yaml.safe_load((FOLDER / "t2" / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    (patched,), (plain,) = pod["containers"], manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    text = (ROOT / "deploy" / "README.md").read_text()
    assert patched["securityContext"]["capabilities"] == {"drop": node["cap_drop"], "add": node["cap_add"]}
    assert set(re.findall(r"--cap-add (\w+)", text)) == set(node["cap_add"])
    assert (
        re.findall(r"--user (\S+)", text) == [node["user"].split(":")[0]] == [str(pod["securityContext"]["runAsUser"])]
    )
    assert (patched["name"], pod["hostUsers"], patched["securityContext"]["procMount"]) == ("node", False, "Unmasked")
    assert set(patched["args"]) ^ set(plain["args"]) == {"--min-tier=T1", "--min-tier=T2"}
    with serve.make_context("serve", [each for each in node["command"] if "--token-file" not in each]) as context:
        drain = context.params["drain_seconds"]
        assert context.params["min_tier"] == "T2"
    assert int(node["stop_grace_period"].removesuffix("s")) > drain
    assert {int(seconds) > drain for seconds in re.findall(r"--stop-timeout (\d+)", text)} == {True}


def test_what_the_image_is_built_from_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert sorted(kept) == sorted(word for line in copied for word in line.split())


def test_probes_ask_for_paths_that_need_no_token_and_liveness_survives_draining() -> None:
    (node,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert node["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert node["livenessProbe"]["httpGet"]["path"] == node["startupProbe"]["httpGet"]["path"] == "/ping"


def test_the_network_policy_lets_nothing_out_and_only_labelled_callers_in() -> None:
    policy = manifests()["NetworkPolicy"]["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    ((rule,),) = [policy["ingress"]]
    assert rule["ports"] == [{"port": 8089, "protocol": "TCP"}]
    assert "namespaceSelector" in rule["from"][0]
    labels = manifests()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels == manifests()["Service"]["spec"]["selector"]


def test_serve_takes_what_each_node_of_a_ray_cluster_is_told(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.touch()
    with serve.make_context("serve", options_for(tokens, slots=6, sessions=200)) as told:
        assert (told.params["slots"], told.params["sessions"]) == (6, 200)
    with serve.make_context("serve", options_for(tokens, None, None)) as told:
        assert (told.params["slots"], told.params["sessions"]) == (NodeConfig().slots, NodeConfig().sessions)


def test_the_container_file_serves_with_a_token_and_as_nobody_special() -> None:
    text = (ROOT / "Containerfile").read_text()
    assert "USER 10001" in text
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    lists = [re.findall(r'"([^"]*)"', line) for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE)]
    program, command, *arguments = [word for words in lists for word in words]
    assert (program, command, arguments[:2]) == ("cleaner-sandbox", "serve", ["--host", "0.0.0.0"])
    assert {word for word in arguments if word.startswith("--")} - {"--host"} == {"--token-file"}
    assert {"--host", "--token-file"} <= {name for option in serve.params for name in option.opts}
