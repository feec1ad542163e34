"""`openai`: records with `messages`, as OpenAI's and Anthropic's APIs have them and most data sets on the Hub.

Calls are in `tool_calls`, their arguments as JSON text or as an object, with results in messages of the role `tool`;
in `function_call`, with results of the role `function`; in `tool_use` parts, with results in `tool_result` parts; or
both are in the text, as Hermes and Qwen write them. `tools`, `functions` and Anthropic's `system` are kept, and so is
every other field. Task, rollout, reward and success are taken from the fields in `base`, where there are any."""

from __future__ import annotations

from cleaner_rl.logs.formats.base import Conversation, log_of
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.parts import leaves
from cleaner_rl.trajectory import TextSpan, Trajectory


class OpenAIFormat(MessagesFormat):
    """Reads and writes records with `messages`."""

    name = "openai"

    def chat(self, trajectory: Trajectory[TextSpan]) -> Conversation:
        """Return the messages and tools, with the system prompt of the record."""
        chat = super().chat(trajectory)
        system = "\n".join(text for _, text in leaves(log_of(trajectory)["record"].get("system"), ()))
        if system and all(message["role"] != "system" for message in chat.messages):
            chat.messages.insert(0, {"role": "system", "content": system})
            chat.turns.insert(0, None)
        return chat
