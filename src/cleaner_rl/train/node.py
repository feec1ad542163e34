"""A run's own sandbox node: `python -m cleaner_rl.train.node SETTINGS [PORT [SESSIONS]]`, settings as JSON."""

from __future__ import annotations

import sys
from dataclasses import replace

import msgspec

from cleaner_rl.sandbox import BARE, SCIENCE, Limits, NodeConfig, PreloadSet
from cleaner_rl.sandbox.service import Keeper, ServiceConfig, bind
from cleaner_rl.sandbox.service.descriptors import sessions_held
from cleaner_rl.train.recipe import Sandbox


def node_config(settings: Sandbox, sessions: int = 0) -> NodeConfig:
    """A node by a recipe's settings, with as many sessions as are wanted, or as its open files allow."""
    limits = Limits(cpu_seconds=settings.cpu_seconds, memory_mb=settings.memory_mb)
    own = PreloadSet("own", tuple(settings.packages), tuple(settings.packages), settings.site or None)
    config = NodeConfig(
        slots=settings.slots or NodeConfig().slots,
        preload=(BARE, own if settings.packages else SCIENCE),
        limits=limits,
    )
    maxima = replace(
        config.maxima,
        cpu_seconds=max(config.maxima.cpu_seconds, limits.cpu_seconds),
        memory_mb=max(config.maxima.memory_mb, limits.memory_mb),
    )
    return replace(config, maxima=maxima, sessions=max(config.sessions, min(sessions, sessions_held(config))))


def main(settings: str, port: str = "0", sessions: str = "0") -> int:
    """Serve until told to stop; port 0 is any free one."""
    config = ServiceConfig(node_config(msgspec.json.decode(settings, type=Sandbox), int(sessions)))
    return Keeper(bind("127.0.0.1", int(port), config), config).run()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
