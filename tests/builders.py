"""Small hand-made turns and a scripted model, for tests that tell a story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cleaner_rl.purify import Draft, RepairBudget, SampleRequest
from cleaner_rl.tools import ExceptionInfo, Status, ToolCall, ToolResult, ToolSet, call_format, feedback, python_tool
from cleaner_rl.trajectory import (
    Key,
    Seeds,
    TextSpan,
    TokenSpan,
    Trajectory,
    Turn,
    Vocabulary,
    read_text,
    read_tokens,
    token_span,
)

TOOLS = ToolSet(python_tool())
BYTES = Vocabulary([bytes([byte]) for byte in range(256)])
SEEDS = Seeds(run=7, task="task", rollout=0)
AMPLE = RepairBudget(lookahead=100_000, context=100_000, response=100_000)
OK = ToolResult(Status.OK, "2\n")
FAULT = ToolResult(Status.FAULT, explanation="no node answered")


def error(kind: str = "NameError", message: str = "name 'y' is not defined", line: int = 1) -> ToolResult:
    return ToolResult(Status.ERROR, exception=ExceptionInfo(kind, message, line))


def written(code: str, reasoning: str = "Let me compute.\n") -> str:
    return f"{reasoning}```python\n{code}\n```"


def drafted(text: str, level: float = -0.5) -> Turn[TokenSpan]:
    """A turn as the model wrote it, one token a byte, each log-prob its own: level, level - 1/1024, …"""
    data = text.encode()
    span = token_span("", data, [level - index / 1024 for index in range(len(data))])
    return read_tokens(span, BYTES, call_format("fenced"), TOOLS)


def drafted_text(text: str) -> Turn[TextSpan]:
    return read_text(text, call_format("fenced"), TOOLS)


def observed(turn: Turn[TokenSpan], *results: ToolResult) -> Turn[TokenSpan]:
    """The turn after its calls gave these results."""
    words = "\n<obs>" + "\n".join(feedback(result) for result in results) + "</obs>\n"
    return replace(turn, results=results, observation=token_span(words, words.encode()))


def observed_text(turn: Turn[TextSpan], *results: ToolResult) -> Turn[TextSpan]:
    words = "\n<obs>" + "\n".join(feedback(result) for result in results) + "</obs>\n"
    return replace(turn, results=results, observation=TextSpan(words))


def failed(code: str = "print(y)", reasoning: str = "I print y. ", result: ToolResult | None = None) -> Turn[TokenSpan]:
    return observed(drafted(written(code, f"{reasoning}\n")), result or error())


def unread(code: str = "print(1 + )") -> Turn[TokenSpan]:
    return failed(code, result=ToolResult(Status.ERROR, exception=ExceptionInfo("SyntaxError", "invalid syntax")))


def worked(code: str = "print(2)", reasoning: str = "I print 2. ", level: float = -1.5) -> Turn[TokenSpan]:
    return observed(drafted(written(code, f"{reasoning}\n"), level), OK)


def answered(text: str = "The answer is 2.") -> Turn[TokenSpan]:
    return drafted(text)


def trajectory(*turns: Turn[TokenSpan], success: bool | None = None) -> Trajectory[TokenSpan]:
    prompt = token_span("What is 1+1?\n", b"What is 1+1?\n")
    return Trajectory(prompt, turns, Key("run", 3, "task", 0), success=success)


def as_text(turn: Turn[TokenSpan]) -> Turn[TextSpan]:
    """The same turn without its tokens."""

    def text(span: TokenSpan | None) -> TextSpan | None:
        return None if span is None else TextSpan(span.text)

    reasoning = TextSpan(turn.reasoning.text)
    return Turn(reasoning, text(turn.action), text(turn.observation), turn.calls, turn.results, turn.attempt)


@dataclass
class ScriptedModel:
    """Answers each request with the next draft of the script, and keeps the requests."""

    script: Sequence[Turn[TokenSpan] | Draft[TokenSpan]]
    requests: list[SampleRequest[TokenSpan]] = field(default_factory=list)

    async def sample(self, request: SampleRequest[TokenSpan]) -> Draft[TokenSpan]:
        self.requests.append(request)
        draft = self.script[len(self.requests) - 1]
        return draft if isinstance(draft, Draft) else Draft(draft)


@dataclass
class ScriptedTool:
    """Answers each call by its code; everything that isn't listed is ok."""

    results: dict[str, ToolResult] = field(default_factory=dict)
    executed: list[Turn[TokenSpan]] = field(default_factory=list)

    def result(self, call: ToolCall) -> ToolResult:
        return call.refusal or self.results.get(call.code.strip(), OK)

    async def execute(self, turn: Turn[TokenSpan]) -> Turn[TokenSpan]:
        self.executed.append(turn)
        return observed(turn, *map(self.result, turn.calls))
