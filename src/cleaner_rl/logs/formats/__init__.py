"""Log formats, one short file for each source: they turn a record into a trajectory, and back.

Other packages add formats with an entry point in the group `cleaner_rl.log_adapters`: a class with the methods of
`LogFormat`, made without arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from cleaner_rl.logs.formats.base import LINES, LogFormat, Reading
from cleaner_rl.tools import Plugins

LOG_ADAPTERS: Plugins[LogFormat] = Plugins(
    group="cleaner_rl.log_adapters",
    what="log format",
    # In the order in which a record is shown to them: those that ask for most come first.
    ours={
        "claude-code": "cleaner_rl.logs.formats.claude_code:ClaudeCodeFormat",
        "codex": "cleaner_rl.logs.formats.codex:CodexFormat",
        "session-trace": "cleaner_rl.logs.formats.session_trace:SessionTraceFormat",
        "openhands": "cleaner_rl.logs.formats.openhands:OpenHandsFormat",
        "swe-agent": "cleaner_rl.logs.formats.swe_agent:SweAgentFormat",
        "mini-swe-agent": "cleaner_rl.logs.formats.mini_swe_agent:MiniSweAgentFormat",
        "langfuse": "cleaner_rl.logs.formats.langfuse:LangfuseFormat",
        "langsmith": "cleaner_rl.logs.formats.langsmith:LangSmithFormat",
        "otel": "cleaner_rl.logs.formats.otel:OtelFormat",
        "nemo-gym": "cleaner_rl.logs.formats.nemo_gym:NemoGymFormat",
        "mint": "cleaner_rl.logs.formats.mint:MintFormat",
        "responses": "cleaner_rl.logs.formats.responses:ResponsesFormat",
        "atif": "cleaner_rl.logs.formats.atif:AtifFormat",
        "inspect": "cleaner_rl.logs.formats.inspect:InspectFormat",
        "verifiers": "cleaner_rl.logs.formats.verifiers:VerifiersFormat",
        "verl": "cleaner_rl.logs.formats.verl:VerlFormat",
        "openai": "cleaner_rl.logs.formats.openai:OpenAIFormat",
        "sharegpt": "cleaner_rl.logs.formats.sharegpt:ShareGptFormat",
        "trajectory": "cleaner_rl.logs.formats.trajectory:TrajectoryFormat",
        "message-list": "cleaner_rl.logs.formats.message_list:MessageListFormat",
    },
    needs=("name", "detects", "read", "write", "chat"),
)

__all__ = ["LOG_ADAPTERS", "LogFormat", "Reading", "detect", "detect_file", "log_format", "log_format_names"]


def log_format_names() -> list[str]:
    """Return the names that `log_format` knows, ours and those of other installed packages."""
    return LOG_ADAPTERS.names()


@cache
def log_format(name: str) -> LogFormat:
    """Return the format of this name."""
    return LOG_ADAPTERS.load(name)


def detect(record: object) -> str | None:
    """Return the name of a record's format; None if none is known. Formats of other packages are asked first."""
    return next((name for name in _asked() if log_format(name).detects(record)), None)


def detect_file(records: Sequence[object], only: str | None = None) -> str | None:
    """Return the name of the format whose record is the whole file that begins with these; None if there is none.

    `only` is the name of the only format to ask.
    """
    names = _asked() if only is None else (only,)
    file = {LINES: list(records)}
    formats = (log_format(name) for name in names)
    return next((each.name for each in formats if getattr(each, "reads_files", False) and each.detects(file)), None)


@cache
def _asked() -> tuple[str, ...]:
    """Return all names in the order in which they are asked. They are kept, because looking for plug-ins takes long."""
    return (*LOG_ADAPTERS.others(), *LOG_ADAPTERS.ours)
