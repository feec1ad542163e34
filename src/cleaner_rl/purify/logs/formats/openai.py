"""`openai`: records with `messages`, as OpenAI's and Anthropic's APIs have them and most data sets on the Hub.

Calls stand in `tool_calls`, their arguments as JSON text or as an object, with results in messages of the role `tool`;
in `function_call`, with results of the role `function`; in `tool_use` parts, with results in `tool_result` parts; or
both stand in the text, as Hermes and Qwen write them. `tools`, `functions` and Anthropic's `system` are kept, and so is
every other field. Task, rollout, reward and success are taken from the fields in `base`, where there are any."""

from __future__ import annotations

from cleaner_rl.purify.logs.chats import chat_of
from cleaner_rl.purify.logs.formats.base import LOG, Chat, Reading, Record, key_of, log_of, outcome_of
from cleaner_rl.purify.logs.messages import Dialect, Reader, Unreadable, all_written
from cleaner_rl.purify.logs.parts import leaves
from cleaner_rl.trajectory import TextSpan, Trajectory

DIALECT = Dialect()


class OpenAIFormat:
    """Records with messages."""

    name = "openai"

    def detects(self, record: object) -> bool:
        """A list of messages with roles."""
        messages = record.get("messages") if isinstance(record, dict) else None
        return isinstance(messages, list) and all(isinstance(each, dict) and "role" in each for each in messages)

    def read(self, record: Record, number: int, reading: Reading) -> Trajectory[TextSpan]:
        """The assistant's messages as turns."""
        if not OpenAIFormat.detects(self, record):  # a subclass may know its records by something else
            raise Unreadable("there is no list of messages")
        found = Reader(reading.tools, DIALECT, reading.call_format).read((), record["messages"])
        reward, success = outcome_of(record)
        log = {"format": self.name, "record": {**record, "messages": None}, **found.kept}
        key = key_of(record, number, reading, found.prompt.text)
        return Trajectory(found.prompt, found.turns, key, reward, success, extra={LOG: log})

    def write(self, trajectory: Trajectory[TextSpan]) -> Record:
        """The record, with the messages of the turns."""
        return {**log_of(trajectory)["record"], "messages": all_written(trajectory, DIALECT)}

    def chat(self, trajectory: Trajectory[TextSpan]) -> Chat:
        """Its messages and tools, with the system's words that stand beside them."""
        record = log_of(trajectory)["record"]
        chat = chat_of(trajectory, DIALECT, record.get("tools") or record.get("functions"))
        system = "\n".join(text for _, text in leaves(record.get("system"), ()))
        if system and all(message["role"] != "system" for message in chat.messages):
            chat.messages.insert(0, {"role": "system", "content": system})
            chat.turns.insert(0, None)
        return chat
