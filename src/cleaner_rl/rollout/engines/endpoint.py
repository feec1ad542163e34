"""Any OpenAI-compatible chat API as a model: text in, text out, for evaluation only.

The endpoint renders, tokenizes and parses where we can't see it, so trajectories are text: no ids, no log-probs,
nothing to train on. Calls come back as the API's `tool_calls`; in the trajectory they come after the text, in
Hermes' form, and are read from there like any model's. Calls that a server left in the text are found the same way.

The prompt's span holds the messages as JSON: that is what was sent.

Limits: lengths are characters, of which a token is taken to have four. Seeds are sent; few services heed them. A call
that couldn't be read is sent back without its arguments, because services refuse broken ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cleaner_rl.purify import Draft, Gate, SampleRequest
from cleaner_rl.rollout.engine import EngineFaultError, Sampling
from cleaner_rl.rollout.engines.http import Address
from cleaner_rl.tasks import Message
from cleaner_rl.tools import NO_CALLS, ToolCall, ToolSet, call_format, feedback
from cleaner_rl.trajectory import Key, TextSpan, Trajectory, Turn, read_text

CHARACTERS_PER_TOKEN = 4


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function


class _Said(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Answer)


class ChatModel:
    """A model behind a chat API."""

    unit = CHARACTERS_PER_TOKEN

    def __init__(
        self,
        address: Address,
        name: str,
        tools: ToolSet,
        *,
        window: int,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        template: Mapping[str, object] | None = None,
    ) -> None:
        """`window` in tokens. The address ends before `/chat/completions`: `https://host/v1`.

        `template`: arguments of the chat template, for servers that take them (`chat_template_kwargs`).
        """
        self.address, self.name, self.tools, self.sampling = address, name, tools, sampling
        self.window = window * self.unit
        self._template = dict(template or {})
        self._format = call_format("hermes" if tools else NO_CALLS)

    def begin(self, messages: Sequence[Message]) -> TextSpan:
        """Return the messages, as they are sent."""
        listed = [{"role": each.role, "content": each.content} for each in messages]
        return TextSpan(json.dumps(listed, ensure_ascii=False))

    async def sample(self, request: SampleRequest[TextSpan]) -> Draft[TextSpan]:
        """Sample one turn after a context."""
        body: dict[str, Any] = {
            "model": self.name,
            "messages": self._messages(request.context),
            "max_tokens": max(1, request.max_length // self.unit),
            "seed": request.seed,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
        }
        if self.sampling.top_k is not None:
            body["top_k"] = self.sampling.top_k  # not OpenAI's, but vLLM's and others'
        if self._template:
            body["chat_template_kwargs"] = self._template
        if self.tools:
            body["tools"] = [tool.schema for tool in self.tools.values()]
        answer = await self.address.post("/chat/completions", body)
        try:
            choice = _decoder.decode(answer).choices[0]
        except (msgspec.DecodeError, IndexError) as error:
            raise EngineFaultError(f"{self.address.url} answers in another form than a chat API: {error}") from error
        turn = read_text(_text(choice.message), self._format, self.tools)
        return Draft(turn, complete=choice.finish_reason != "length")

    def written(self, text: str) -> Draft[TextSpan]:
        """Return a prefilled turn."""
        return Draft(read_text(text, self._format, self.tools))

    def observe(self, turn: Turn[TextSpan], results: Sequence[str]) -> TextSpan:  # noqa: ARG002
        """Return the results, one after the other; the service gets each in a message of its own."""
        return TextSpan("\n".join(f"<tool_response>\n{result}\n</tool_response>" for result in results))

    def answer(self, turn: Turn[TextSpan]) -> str:
        """Return the text of the turn."""
        return turn.text

    def gate(self, key: Key, max_logprob_gap: float | None) -> Gate[TextSpan] | None:  # noqa: ARG002
        """Return None: a text has no log-probs."""
        return None

    async def rescored(self, trajectory: Trajectory[TextSpan], max_logprob_gap: float | None) -> Trajectory[TextSpan]:  # noqa: ARG002
        """Return the same trajectory: a text has no log-probs."""
        return trajectory

    def _messages(self, context: Trajectory[TextSpan]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = json.loads(context.prompt.text)
        for index, turn in enumerate(context.turns):
            names = [f"call_{index}_{number}" for number in range(len(turn.calls))]
            calls = [_call(name, call) for name, call in zip(names, turn.calls, strict=True)]
            messages.append({"role": "assistant", "content": turn.reasoning.text, "tool_calls": calls})
            messages += [
                {"role": "tool", "tool_call_id": name, "content": feedback(result)}
                for name, result in zip(names, turn.results, strict=True)
            ]
        return messages


def _text(said: _Said) -> str:
    """All that the model wrote, calls behind the words."""
    thought = said.reasoning_content or said.reasoning or ""
    parts = [f"<think>\n{thought}\n</think>\n\n" if thought else "", said.content or ""]
    for call in said.tool_calls or ():
        # The arguments are put down as they came: whether they can be read, the format says.
        name, arguments = json.dumps(call.function.name), call.function.arguments or "{}"
        parts.append(f'\n<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>')
    return "".join(parts)


def _call(name: str, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name or "unknown", "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
    return {"id": name, "type": "function", "function": function}
