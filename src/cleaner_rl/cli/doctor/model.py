"""A model that was named: does its chat template fit, or does its server answer?"""

from __future__ import annotations

import json
import os
import urllib.request
from http.client import HTTPException
from importlib.util import find_spec

from cleaner_rl.cli.doctor.check import Check, State
from cleaner_rl.rollout.chat import Chat, ChatError
from cleaner_rl.tasks import Prompt

SECONDS = 10.0


def model(named: str, prompt: Prompt) -> Check:
    """A folder or hub name: its template. An address: its server."""
    return _server(named) if named.startswith(("http://", "https://")) else _template(named, prompt)


def _template(named: str, prompt: Prompt) -> Check:
    name = f"model {named}"
    if find_spec("transformers") is None or find_spec("jinja2") is None:
        said = "its template can't be looked at: transformers or jinja2 is not here"
        return Check(name, State.WRONG, said, "pip install 'cleaner-rl[rollout]'")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch isn't news here
    from cleaner_rl.rollout.engines.connect import tokenizer_of

    try:
        chat = Chat(tokenizer_of(named), prompt.tools, in_template=prompt.in_template)
    except ChatError as error:
        advice = "another chat template goes beside the tokenizer as chat_template.jinja; Qwen's fit as they are"
        return Check(name, State.WRONG, str(error), advice)
    if chat.notes:
        return Check(name, State.LESS, f"its template can be used: {'; '.join(chat.notes)}", _noted(chat.notes))
    return Check(name, State.OK, "its chat template can be used: histories grow by exact glue")


def _noted(notes: tuple[str, ...]) -> str:
    if any("tools" in note for note in notes):
        return "take a prompt that tells of the tool itself: --prompt fenced"
    return "nothing to do for training; evaluate behind vLLM or SGLang rather than a chat API"


def _server(url: str) -> Check:
    name, url = f"model {url}", url.rstrip("/").removesuffix("/v1")
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=SECONDS) as answer:
            (served, *_) = json.load(answer)["data"]
        window = served.get("max_model_len")
        said = f"serves {served['id']}" + (f", window {window:,} tokens" if window else "")
    except urllib.error.HTTPError as error:
        with error:
            remedy = "give all of its path, up to /v1; a service that wants a token gets it with the commands' --token"
            return Check(name, State.WRONG, f"it answers {error.code} to /v1/models", remedy)
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        remedy = "start it (`vllm serve MODEL --enable-prompt-tokens-details`), or mend the address"
        return Check(name, State.WRONG, f"no engine answers: {error}", remedy)
    if window is None:
        remedy = "fine as --url for evaluation with --engine chat; training needs vLLM or SGLang, which speak ids"
        return Check(name, State.LESS, f"{said}; a chat API, text only", remedy)
    return Check(name, State.OK, said)
