"""Nodes on a Ray cluster: one per machine, kept alive by Ray; calls go to them directly over HTTP, never through Ray.

On each machine a detached actor runs `cleaner sandbox serve` and lives as long as it: if the node's keeper dies, so
does the actor, and Ray starts it again. Actors have names, so any program of the cluster finds the nodes.

Limits: a machine that joins later gets its node when `up` runs again (which leaves the others alone). The token file
has to be at the same path on every machine. Tried on one machine with Ray 2.60.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMESPACE = "cleaner-sandbox"
PREFIX = "node-"
START_SECONDS = 120.0


class NodeActor:
    """One node on this machine; becomes an actor in `up`."""

    def __init__(self, options: Sequence[str]) -> None:
        import ray

        command = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "sandbox", "serve"]
        command += ["--host", ray.util.get_node_ip_address(), "--port", "0", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        ready = json.loads(first) if first else {}
        if ready.get("event") != "ready":
            raise RuntimeError(f"the node did not start: {ready.get('message', 'see its log')}")
        host, port = ready["address"]
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._tier = int(ready["health"]["tier"])
        threading.Thread(target=self._follow, daemon=True).start()

    def about(self) -> tuple[str, int]:
        """The node's address and tier."""
        return self._url, self._tier

    def _follow(self) -> None:
        # The node's log becomes the actor's; its end is the node's, and then Ray has to start both again.
        assert self._process.stdout is not None
        for line in self._process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        os._exit(1)


def up(options: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Have a node on every machine of the cluster; the address and tier of each, by Ray's name for the machine."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actors: dict[str, Any] = {}
    for machine in ray.nodes():
        if machine["Alive"]:
            name = machine["NodeID"]
            actors[name] = (
                ray.remote(NodeActor)
                .options(
                    name=PREFIX + name,
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    max_restarts=-1,
                    max_task_retries=-1,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
                )
                .remote(list(options))
            )
    return {name: ray.get(actor.about.remote(), timeout=START_SECONDS) for name, actor in actors.items()}


def down() -> int:
    """End all nodes; how many there were."""
    import ray

    actors = _actors()
    for actor in actors:
        ray.kill(actor)
    return len(actors)


def urls() -> list[str]:
    """The addresses of all nodes that answer; for the client, which asks again every few seconds."""
    import ray

    asked = [actor.about.remote() for actor in _actors()]
    done, _ = ray.wait(asked, num_returns=len(asked), timeout=5.0) if asked else ([], [])
    found = []
    for each in done:
        try:
            found.append(ray.get(each)[0])
        except ray.exceptions.RayError:
            continue  # its machine is gone, or it is only just starting again
    return sorted(found)


def _actors() -> list[Any]:
    import ray

    if not ray.is_initialized():
        # Ray would start a cluster of its own, on all interfaces, to look for our nodes in it.
        raise RuntimeError("connect to the Ray cluster first: ray.init(address=...)")
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [each["name"] for each in named if each["namespace"] == NAMESPACE and each["name"].startswith(PREFIX)]
    return [ray.get_actor(name, namespace=NAMESPACE) for name in names]


def options_for(token_file: Path, slots: int | None, sessions: int | None) -> list[str]:
    """What each node's command line says."""
    named = {"--slots": slots, "--sessions": sessions}
    chosen = [text for name, value in named.items() if value is not None for text in (name, str(value))]
    return ["--token-file", str(token_file), *chosen]
