"""Checks of a model: does its chat template fit, or does its server answer?"""

from __future__ import annotations

import json
import os
import urllib.request
from http.client import HTTPException
from importlib.util import find_spec

from cleaner_rl.doctor.check import Check, State
from cleaner_rl.rollout import ChatError, ChatRenderer
from cleaner_rl.tasks import Prompt

SECONDS = 10.0


def model(named: str, prompt: Prompt) -> Check:
    """Check a model: by its chat template for a folder or hub name, by its server for an address."""
    return _server(named) if named.startswith(("http://", "https://")) else _template(named, prompt)


def _template(named: str, prompt: Prompt) -> Check:
    name = f"model {named}"
    if find_spec("transformers") is None or find_spec("jinja2") is None:
        said = "its chat template can't be checked: transformers or jinja2 is not installed"
        return Check(name, State.WRONG, said, "pip install '.[rollout]' in the checkout")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say that there is no torch
    from cleaner_rl.rollout.engines import tokenizer_of

    try:
        chat = ChatRenderer.for_prompt(tokenizer_of(named), prompt)
    except ChatError as error:
        advice = (
            "docs/models.md says which models work; or put another template beside the tokenizer, chat_template.jinja"
        )
        return Check(name, State.WRONG, str(error), advice)
    if chat.notes:
        return Check(name, State.LESS, f"its chat template can be used: {'; '.join(chat.notes)}", _noted(chat.notes))
    return Check(name, State.OK, "its chat template can be used: a conversation grows by appending exact tokens")


def _noted(notes: tuple[str, ...]) -> str:
    if any("tools" in note for note in notes):
        return "use a prompt that describes the tool itself: --prompt fenced"
    return "nothing to do for training; for evaluation use vLLM or SGLang rather than a chat API"


def _server(url: str) -> Check:
    name, url = f"model {url}", url.rstrip("/").removesuffix("/v1")
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=SECONDS) as answer:
            (served, *_) = json.load(answer)["data"]
        window = served.get("max_model_len")
        said = f"serves {served['id']}" + (f", window {window:,} tokens" if window else "")
    except urllib.error.HTTPError as error:
        with error:
            remedy = "give the whole address, up to /v1; if it asks for a token, pass it to the commands with --token"
            return Check(name, State.WRONG, f"it answers HTTP {error.code} to /v1/models", remedy)
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        remedy = "start it (`vllm serve MODEL --enable-prompt-tokens-details`), or correct the address"
        return Check(name, State.WRONG, f"no engine answers: {error}", remedy)
    if window is None:
        remedy = (
            "use it as --url with --engine chat for evaluation; training needs vLLM or SGLang, which return token ids"
        )
        return Check(name, State.LESS, f"{said}; a chat API, text only", remedy)
    return Check(name, State.OK, said)
