"""`openai`: records with `messages`, as OpenAI's and Anthropic's APIs have them and most data sets on the Hub.

Calls are in `tool_calls`, their arguments as JSON text or as an object, with results in messages of the role `tool`;
in `function_call`, with results of the role `function`; in `tool_use` parts, with results in `tool_result` parts; or
both are in the text, as Hermes and Qwen write them. `tools`, `functions` and Anthropic's `system` are kept, and so is
every other field. Task, rollout, reward and success are taken from the fields in `base`, where there are any."""

from __future__ import annotations

from typing import Any

from cleaner_rl.logs.formats.base import Record
from cleaner_rl.logs.formats.messages import MessagesFormat


class OpenAIFormat(MessagesFormat):
    """Reads and writes records with `messages`."""

    name = "openai"

    def system(self, record: Record) -> Any:
        """Return Anthropic's `system`."""
        return record.get("system")
