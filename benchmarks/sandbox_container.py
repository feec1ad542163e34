"""The sandbox's image, built and attacked: `python -m benchmarks.sandbox_container --json`.

Builds `packages/cleaner-sandbox` with podman, starts it with the rights that `deploy/compose.yaml` gives a node, alone,
in a user namespace and (with `--user`) rootless, and runs `cleaner-sandbox check` inside. Attacks that got through, or
were answered late, are tried again alone: on a busy machine those that depend on time can get through.

It needs podman, root, and the base that the Containerfile names; without a registry in reach `podman import` makes one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.record import save

PACKAGE = Path(__file__).parents[1] / "packages" / "cleaner-sandbox"
IMAGE = "cleaner-sandbox"
IDS = ("--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536")


def rights() -> list[str]:
    """What `deploy/compose.yaml` gives a node, as podman's options."""
    node = yaml.safe_load((PACKAGE / "deploy" / "compose.yaml").read_text())["services"]["node"]
    given = [f"--user={node['user']}", *(["--read-only"] if node["read_only"] else [])]
    for option, name in (("cap-drop", "cap_drop"), ("cap-add", "cap_add"), ("tmpfs", "tmpfs")):
        given += [f"--{option}={each}" for each in node[name]]
    return given + [f"--security-opt={each}" for each in node["security_opt"]]


def check(podman: Sequence[str], options: Sequence[str], only: str) -> dict[str, Any]:
    """Run the attacks of this pattern in a fresh container."""
    # Some honeypots are files in the home of the node's user.
    command = [*podman, "run", "--rm", "--network=none", "--tmpfs=/root", *options]
    command += ["--entrypoint=cleaner-sandbox", IMAGE]
    command += ["check", "--no-proof", "--json", "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tried(podman: Sequence[str], options: Sequence[str], only: str) -> dict[str, Any]:
    """Run all attacks, and those that were not contained once more, each alone."""
    found = check(podman, options, only)
    again = {}
    for name in sorted(_not_contained(found)):
        alone = check(podman, options, name)
        again[name] = _not_contained(alone).get(name, "contained")
    counts = {name: found[name] for name in ("tier", "attacks", "escaped", "leaked", "wrong")}
    return {**counts, "not_contained": _not_contained(found), "alone": again}


def _not_contained(found: dict[str, Any]) -> dict[str, list[str]]:
    each = {one["name"]: one["escaped"] + one["leaked"] + one["wrong"] for one in found["details"]}
    return {name: problems for name, problems in each.items() if problems}


def _rootless(user: str) -> list[str]:
    """Podman as another user, who gets a copy of the image."""
    podman = ["runuser", "-u", user, "--", "podman"]
    with tempfile.TemporaryFile() as image:
        subprocess.run(["podman", "save", IMAGE], check=True, stdout=image)
        image.seek(0)
        subprocess.run([*podman, "load"], check=True, stdin=image, stdout=sys.stderr)
    return podman


def main(arguments: Sequence[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="append", default=[], help="one more option of podman build")
    parser.add_argument("--user", help="also start one rootless, as a user with ids in /etc/subuid and /etc/subgid")
    parser.add_argument("--only", default="*", help="a pattern of attacks' names")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--save", type=Path, help="keep the figures in this file")
    chosen = parser.parse_args(arguments)
    subprocess.run(["podman", "build", *chosen.build, "-t", IMAGE, PACKAGE], check=True, stdout=sys.stderr)
    ways = {"root": (["podman"], rights()), "user_namespace": (["podman"], [*rights(), *IDS])}
    if chosen.user:
        ways["rootless"] = _rootless(chosen.user), rights()
    figures = {name: tried(podman, options, chosen.only) for name, (podman, options) in ways.items()}
    if chosen.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, found in figures.items():
            print(name, *(f"{key} {found[key]}" for key in ("tier", "attacks", "escaped", "leaked", "wrong", "alone")))
    if chosen.save:
        save(chosen.save, figures, {"rights": rights(), "only": chosen.only})
    return int(any(set(found["alone"].values()) - {"contained"} for found in figures.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
