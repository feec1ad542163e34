"""From a prompt's tool to the toolbox where its calls run: ours for Python, or another one by its name.

A prompt says `kind = "stateless"` or `kind = "session"` for Python in the sandbox. Any other kind is a plug-in, made
with the prompt's `[tool.options]`. Other packages add theirs with an entry point in the group `cleaner_rl.tools`: a
class with the methods of `Toolbox`.
"""

from __future__ import annotations

from cleaner_rl.rollout.guarded import GuardedToolbox
from cleaner_rl.rollout.toolbox import Sandbox, SessionToolbox, StatelessToolbox, Toolbox
from cleaner_rl.sandbox.requests import SessionRequest
from cleaner_rl.tasks import Prompt, ToolKind
from cleaner_rl.tools.plugins import Plugins

TOOLS: Plugins[Toolbox] = Plugins(
    group="cleaner_rl.tools",
    what="tool",
    ours={
        ToolKind.STATELESS: "cleaner_rl.rollout.toolbox:StatelessToolbox",
        ToolKind.SESSION: "cleaner_rl.rollout.toolbox:SessionToolbox",
        "sql": "cleaner_rl.rollout.sql:SqlTool",
    },
    needs=("stateful", "limits", "open"),
)


def toolbox_of(prompt: Prompt, sandbox: Sandbox, request: SessionRequest = SessionRequest()) -> Toolbox:  # noqa: B008 - frozen
    """Where the calls of the prompt's tool run; the sandbox and what is asked of it are for Python."""
    if prompt.tool_kind == ToolKind.SESSION:
        return SessionToolbox(sandbox, request)
    if prompt.tool_kind == ToolKind.STATELESS:
        return StatelessToolbox(sandbox, request.limits)
    return GuardedToolbox(TOOLS.load(prompt.tool_kind, **prompt.tool_options), prompt.tool_kind)
