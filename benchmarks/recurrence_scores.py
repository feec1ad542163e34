"""Finds the tokens of a correction that SmolLM2 finds more likely with the failed calls in its context.

Turns are written as ChatML, each call in a fenced block with its tool's name, which every source has in common.
The context without them ends with the reasoning of the failed turn, as a graft has it; the one with them ends with the
correction's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from cleaner_rl.trajectory import TextSpan, Trajectory, Turn

NATS = 1.0
LIMITS = {"history": 1024, "failed": 512, "call": 256}
"""Tokens: the last ones of the history before the failed calls, the last ones of these, the first ones of the call."""

Token = tuple[tuple[tuple[int, int], int], int, int]
"""Its place and itself, and where it begins and ends in the call."""


def written(turn: Turn[TextSpan]) -> str:
    """Return a turn with its results."""
    after = "" if turn.observation is None else f"<|im_start|>user\n{turn.observation.text}<|im_end|>\n"
    return f"{opened(turn)}{turn.code}\n```<|im_end|>\n{after}"


def opened(turn: Turn[TextSpan]) -> str:
    """Return a turn up to its call."""
    return f"<|im_start|>assistant\n{turn.reasoning.text}\n```{turn.calls[0].name if turn.calls else ''}\n"


def scorer() -> Callable[[Trajectory[TextSpan], Sequence[Turn[TextSpan]], Turn[TextSpan]], list[Token]]:
    """Return a function of the history, the failed turns and the correction that returns its surprising tokens."""
    import torch

    from benchmarks.models import smollm2

    torch.set_num_threads(1)
    model, tokenizer = smollm2()
    model = model.to(torch.bfloat16).eval()

    def ids(text: str, most: int) -> list[int]:
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return found[-most:]

    def logprobs(past: Any, context: list[int], call: list[int]) -> Any:
        tokens = torch.tensor([context + call])
        logits = model(tokens, past_key_values=deepcopy(past), logits_to_keep=len(call) + 1).logits[0, :-1]
        return logits.float().log_softmax(-1)

    def surprising(before: Trajectory[TextSpan], failed: Sequence[Turn[TextSpan]], turn: Turn[TextSpan]) -> list[Token]:
        history = f"<|im_start|>user\n{before.prompt.text}<|im_end|>\n{''.join(map(written, before.turns))}"
        coded = tokenizer(turn.code, add_special_tokens=False, return_offsets_mapping=True)
        call = coded["input_ids"][: LIMITS["call"]]
        clean, whole = opened(failed[0]), "".join(map(written, failed)) + opened(turn)
        with torch.inference_mode():
            past = model(torch.tensor([ids(history, LIMITS["history"])]), logits_to_keep=1).past_key_values
            without, given = (logprobs(past, ids(text, LIMITS["failed"]), call) for text in (clean, whole))
        places = torch.arange(len(call)), torch.tensor(call)
        gap = (given[places] - without[places]).tolist()
        best = without.argmax(-1).tolist()
        previous = [ids(clean, 1)[0], *call[:-1]]
        return [
            (((previous[i], best[i]), token), *coded["offset_mapping"][i])
            for i, token in enumerate(call)
            if gap[i] > NATS
        ]

    return surprising
