"""Tool calls, their results, and who is to blame for a failure.

- `calls`: the tools a model may use, and one call as the model wrote it.
- `kinds`: what a call does (Python, shell, file edit, SQL), also of tools that nobody described.
- `results`: the outcome of a call as a status, which says who is to blame; never as text to be searched.
- `feedback`: turns a result into text for the model; nothing else does.
- `formats`: how calls are written in a model's text (Hermes JSON, XML, fenced Python), found as plug-ins.
- `seeds`, `plugins`, `json_values`: seeds from names, what other packages add, and JSON from untrusted sources; every
  package needs them.

Limits: arguments are checked for presence and for being valid JSON, not against their whole JSON schema.
"""

from cleaner_rl.tools.calls import ToolCall, ToolSet, ToolSpec, python_tool
from cleaner_rl.tools.feedback import feedback
from cleaner_rl.tools.formats import CALL_FORMATS, NO_CALLS, CallFormat, ParsedText, call_format, call_format_names
from cleaner_rl.tools.json_values import read_json
from cleaner_rl.tools.kinds import CallKind, call_code, call_kind
from cleaner_rl.tools.plugins import PluginError, Plugins
from cleaner_rl.tools.results import Blame, ExceptionInfo, Status, ToolResult
from cleaner_rl.tools.seeds import derive_seed

__all__ = [
    "CALL_FORMATS",
    "NO_CALLS",
    "Blame",
    "CallFormat",
    "CallKind",
    "ExceptionInfo",
    "ParsedText",
    "PluginError",
    "Plugins",
    "Status",
    "ToolCall",
    "ToolResult",
    "ToolSet",
    "ToolSpec",
    "call_code",
    "call_format",
    "call_format_names",
    "call_kind",
    "derive_seed",
    "feedback",
    "python_tool",
    "read_json",
]
