"""Where a conversation's text comes from: the tokenizer's own chat template, or a family of the package `renderers`.

Both are used in the same way: messages and tools in, text out. Whatever goes wrong in a template is a `ChatError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from cleaner_rl.trajectory import Vocabulary, token_span


class ChatError(ValueError):
    """A template or tokenizer that can't be used as it is; the message says what to change."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer: a Hugging Face one has it."""

    @property
    def eos_token_id(self) -> Any:
        """The id of the end-of-sequence token, or None."""
        ...

    @property
    def backend_tokenizer(self) -> Any:
        """The fast tokenizer below it."""
        ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Render messages."""
        ...

    def encode(self, text: Any, **options: Any) -> Any:
        """Text to ids."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """All tokens."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens that stand for their own text."""
        ...


Messages: TypeAlias = Sequence[Mapping[str, object]]
Template: TypeAlias = Callable[[Messages, list[dict[str, object]] | None, bool], str]
"""Messages, tools and whether the next turn is opened; the text."""


def own_template(tokenizer: Tokenizer, options: Mapping[str, object]) -> Template:
    """Return the tokenizer's own template."""

    def render(messages: Messages, tools: list[dict[str, object]] | None, opened: bool) -> str:
        try:
            rendered: str = tokenizer.apply_chat_template(
                list(messages), tools=tools, add_generation_prompt=opened, tokenize=False, **options
            )
        except Exception as error:  # a template is a program of somebody's: it can raise anything
            raise ChatError(
                f"the chat template refuses a conversation of the roles {_roles(messages)}: "
                f"{type(error).__name__}: {error}; put another one beside the tokenizer as chat_template.jinja"
            ) from error
        return rendered

    return render


def family_template(
    family: str, tokenizer: Tokenizer, options: Mapping[str, object], vocabulary: Vocabulary
) -> Template:
    """Return the template of this name in the package `renderers`, on a tokenizer that has its tokens."""
    try:
        from renderers import config_from_name, create_renderer
    except ImportError as error:
        raise ChatError(
            f"model.renderer is {family!r}, and the package renderers can't be imported ({error}): "
            "pip install 'renderers>=0.1.12'"
        ) from error
    try:
        renderer = create_renderer(tokenizer, config_from_name(family), chat_template_kwargs=dict(options) or None)
    except Exception as error:  # for a name or an option, of a renderer for a token that is missing
        raise ChatError(f"the template {family!r} of renderers doesn't fit this model: {_first_line(error)}") from error

    def render(messages: Messages, tools: list[dict[str, object]] | None, opened: bool) -> str:
        # It wants the functions themselves, without the frame that chat APIs put around them.
        functions = [tool["function"] for tool in tools] if tools else None
        try:
            ids = renderer.render_ids(list(messages), tools=functions, add_generation_prompt=opened)
        except Exception as error:
            raise ChatError(
                f"the template {family!r} of renderers refuses a conversation of the roles {_roles(messages)}: "
                f"{_first_line(error)}"
            ) from error
        return vocabulary.decode(token_span("", ids).ids).text

    return render


def _roles(messages: Messages) -> str:
    return ", ".join(str(each["role"]) for each in messages)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
