"""Serves a run's own sandbox node: `python -m cleaner_rl.train.launch.node SETTINGS [PORT [SESSIONS]]` (JSON)."""

from __future__ import annotations

import sys
from dataclasses import replace

import msgspec

from cleaner_rl.train.recipe.settings import SandboxSettings
from cleaner_sandbox import BARE, SCIENCE, Environment, Limits, NodeConfig, find_environments, serve, sessions_held


def node_config(settings: SandboxSettings, sessions: int = 0) -> NodeConfig:
    """Return a node's configuration by a recipe, with the wanted sessions or as many as its open files allow."""
    limits = Limits(cpu_seconds=settings.cpu_seconds, memory_mb=settings.memory_mb)
    config = NodeConfig(
        slots=settings.slots or NodeConfig().slots,
        environments=_environments(settings),
        limits=limits,
    )
    maxima = replace(
        config.maxima,
        cpu_seconds=max(config.maxima.cpu_seconds, limits.cpu_seconds),
        memory_mb=max(config.maxima.memory_mb, limits.memory_mb),
    )
    return replace(config, maxima=maxima, sessions=max(config.sessions, min(sessions, sessions_held(config))))


def _environments(settings: SandboxSettings) -> tuple[Environment, ...]:
    found = find_environments([settings.environment, *settings.environments])
    # Those that have files alone need the packages of another one.
    usual = (BARE, SCIENCE) if all(each.only_files for each in found) else (BARE,)
    return tuple(dict.fromkeys((*usual, *found)))


def main(settings: str, port: str = "0", sessions: str = "0") -> int:
    """Serve until told to stop; port 0 is any free one."""
    config = node_config(msgspec.json.decode(settings, type=SandboxSettings), int(sessions))
    return serve(config, port=int(port))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
