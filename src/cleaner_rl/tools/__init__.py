"""What a tool call is, what came back, and whose doing a failure was.

- `calls`: the tools a model may use, and one call as the model wrote it.
- `results`: the outcome of a call as a status with an owner, never as text to be searched.
- `feedback`: the one place that turns a result into words for the model.
- `formats`: how calls stand in a model's text (Hermes JSON, XML, fenced Python), found as plug-ins.
- `seeds`, `plugins`: what every room needs of the ground floor: seeds from names, and what other packages add.

Limits: arguments are checked for presence and for being valid JSON, not against their whole JSON schema.
"""

from cleaner_rl.tools.calls import ToolCall, ToolSet, ToolSpec, python_tool
from cleaner_rl.tools.feedback import feedback, shorten
from cleaner_rl.tools.formats import NO_CALLS, CallFormat, ParsedText, call_format, call_format_names
from cleaner_rl.tools.plugins import PluginError, Plugins
from cleaner_rl.tools.results import Blame, ExceptionInfo, Status, ToolResult
from cleaner_rl.tools.seeds import derive_seed

__all__ = [
    "NO_CALLS",
    "Blame",
    "CallFormat",
    "ExceptionInfo",
    "ParsedText",
    "PluginError",
    "Plugins",
    "Status",
    "ToolCall",
    "ToolResult",
    "ToolSet",
    "ToolSpec",
    "call_format",
    "call_format_names",
    "derive_seed",
    "feedback",
    "python_tool",
    "shorten",
]
