"""What can go wrong outside of the program, in one line: for the commands that run a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cleaner_rl.cli.words import said
from cleaner_rl.rollout import ChatError, EngineFaultError
from cleaner_rl.tasks import DatasetError
from cleaner_rl.trajectory.store import BusyError
from cleaner_sandbox import SandboxUnavailableError
from cleaner_sandbox.client import RequestRefusedError

EXPECTED = (
    BusyError,
    ChatError,
    DatasetError,
    EngineFaultError,
    ImportError,
    LookupError,
    OSError,
    RequestRefusedError,
    SandboxUnavailableError,
    ValueError,
)
"""Each says what happened and what to do."""


@contextmanager
def explained() -> Iterator[None]:
    """Say what went wrong in one line; a bug keeps its traceback."""
    try:
        yield
    except EXPECTED as error:
        raise click.ClickException(said(error)) from None
    except ExceptionGroup as group:
        expected, others = group.split(EXPECTED)
        if expected is None or others is not None:
            raise
        raise click.ClickException(said(_first(expected))) from None


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
