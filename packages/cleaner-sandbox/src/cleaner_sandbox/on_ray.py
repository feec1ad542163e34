"""Nodes on a Ray cluster: one per machine, kept alive by Ray; calls go to them directly over HTTP, never through Ray.

On each machine a detached actor runs `cleaner-sandbox serve` and lives as long as it: if the node's supervisor
dies, so does the actor, and Ray starts it again. Actors have names, so any program of the cluster finds the nodes.

Limits: a machine that joins later gets its node when `start_on_ray` runs again (which leaves the others alone). The
token file has to be at the same path on every machine. Tried on one machine with Ray 2.60.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMESPACE = "cleaner-sandbox"
PREFIX = "node-"
START_SECONDS = 120.0


class NodeActor:
    """One node on this machine; becomes an actor in `start_on_ray`."""

    def __init__(self, options: Sequence[str]) -> None:
        import ray

        command = [sys.executable, "-m", __package__, "serve"]
        command += ["--host", ray.util.get_node_ip_address(), "--port", "0", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        ready = json.loads(first) if first else {}
        if ready.get("event") != "ready":
            raise RuntimeError(
                f"the node on this machine did not start: {ready.get('message', 'the log of its actor says why')}"
            )
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


def start_on_ray(
    token_file: Path, *, slots: int | None = None, sessions: int | None = None, address: str | None = None
) -> dict[str, tuple[str, int]]:
    """Start a node on every machine of a Ray cluster that has none, and return the address and tier of each.

    The keys are Ray's names for the machines. Clients find the nodes as `ray:`.

    Args:
        token_file: Tokens and their quotas, at the same path on every machine.
        slots: Programs that a node runs at the same time; None: two per core of its machine.
        sessions: Sessions that a node holds open at once; None: as `NodeConfig` has it.
        address: Of the cluster's head; None: the one that this process is connected to, or that Ray finds.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: No cluster answers.

    Examples:
        >>> from cleaner_sandbox import start_on_ray
        >>> start_on_ray(Path("/shared/tokens.toml"))  # doctest: +SKIP
    """
    with _connected(address):
        return _up(options_for(token_file, slots, sessions))


def stop_on_ray(address: str | None = None) -> int:
    """End all nodes of a Ray cluster, and return how many there were; `address` as for `start_on_ray`."""
    with _connected(address):
        return _down()


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    try:
        import ray
    except ImportError:
        raise ImportError("Ray is not installed here: pip install ray") from None
    if ray.is_initialized():
        yield
        return
    ray.init(address=address or "auto", namespace=NAMESPACE, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def _up(options: Sequence[str]) -> dict[str, tuple[str, int]]:
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


def _down() -> int:
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
        raise RuntimeError("this process is not connected to a Ray cluster; connect first: ray.init(address=...)")
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [each["name"] for each in named if each["namespace"] == NAMESPACE and each["name"].startswith(PREFIX)]
    return [ray.get_actor(name, namespace=NAMESPACE) for name in names]


def options_for(token_file: Path, slots: int | None, sessions: int | None) -> list[str]:
    """What each node's command line says."""
    named = {"--slots": slots, "--sessions": sessions}
    chosen = [text for name, value in named.items() if value is not None for text in (name, str(value))]
    return ["--token-file", str(token_file), *chosen]
