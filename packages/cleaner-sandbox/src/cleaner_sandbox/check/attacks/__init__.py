"""The attacks that ship, one module per class (escapes by the way they take)."""

from cleaner_sandbox.check.attack import Attack
from cleaner_sandbox.check.attacks import (
    across_runs,
    dodge,
    escape_files,
    escape_kernel,
    escape_processes,
    input_output,
    lifecycle,
    network,
    protocol,
    resources,
    secrets,
    sessions,
    shell,
)

ATTACKS: tuple[Attack, ...] = (
    *resources.ATTACKS,
    *lifecycle.ATTACKS,
    *escape_processes.ATTACKS,
    *escape_kernel.ATTACKS,
    *escape_files.ATTACKS,
    *network.ATTACKS,
    *secrets.ATTACKS,
    *sessions.ATTACKS,
    *across_runs.ATTACKS,
    *protocol.ATTACKS,
    *input_output.ATTACKS,
    *dodge.ATTACKS,
    *shell.ATTACKS,
)

__all__ = ["ATTACKS"]
