"""Token ids to text, and character positions to token boundaries, exactly.

In a byte-level vocabulary a character may span tokens and a token characters. Edits happen only between tokens, and
only where a character ends too, so that the text of a splice is the splice of the texts.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner_rl.trajectory.spans import Ids

INSIDE_CHARACTER = -1


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The text of some tokens, and where each token begins in it."""

    text: str
    offsets: npt.NDArray[np.int64]
    """Characters before each of the n + 1 token boundaries; -1 where the boundary lies inside a character."""

    def boundary(self, character: int) -> int:
        """The last token boundary at or before a character's position: a token that reaches across it comes after."""
        clean = np.flatnonzero(self.offsets != INSIDE_CHARACTER)
        return int(clean[np.searchsorted(self.offsets[clean], character, side="right") - 1])


class Vocabulary:
    """The bytes of every token."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        """`tokens[id]` is what the token stands for; of a control token, its name (`<|im_end|>`)."""
        self._tokens = [*tokens, b""]
        self._lengths = np.fromiter(map(len, self._tokens), np.int64, len(self._tokens))

    @classmethod
    def from_byte_level(cls, ids: Mapping[str, int], added: Mapping[str, int]) -> Vocabulary:
        """Make the vocabulary of a byte-level BPE (GPT-2, Qwen, SmolLM2), whose entries spell bytes as printable
        characters.

        `added` are the tokens whose entry is their own text.
        """
        tokens = [b""] * (1 + max(*ids.values(), *added.values(), -1, -1))
        to_byte = _byte_alphabet()
        for token, token_id in ids.items():
            tokens[token_id] = token.encode() if token in added else bytes(to_byte[character] for character in token)
        for token, token_id in added.items():
            tokens[token_id] = token.encode()
        return cls(tokens)

    def decode(self, ids_T: Ids) -> Decoded:  # noqa: N803 - the shape is part of the name
        """Return the tokens' text and their boundaries in it; bytes that are no UTF-8 become U+FFFD.

        Models have more rows than their vocabulary has tokens; an id after the last token has no text.
        """
        ids_T = np.minimum(ids_T, len(self._tokens) - 1)  # noqa: N806
        pieces = [self._tokens[token_id] for token_id in ids_T.tolist()]
        data = b"".join(pieces)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return _decode_broken(pieces)
        ends = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(self._lengths[ids_T], out=ends[1:])
        if len(text) == len(data):
            return Decoded(text, ends)
        # A byte of the form 10xxxxxx continues a character; every other byte begins one.
        begins = np.ones(len(data) + 1, np.bool_)
        begins[:-1] = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
        characters_before: npt.NDArray[np.int64] = np.cumsum(begins) - begins
        return Decoded(text, np.where(begins[ends], characters_before[ends], INSIDE_CHARACTER))


def _decode_broken(pieces: Sequence[bytes]) -> Decoded:
    """The same, token by token, for bytes that are no UTF-8: rare, and still linear."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = []
    offsets = np.zeros(len(pieces) + 1, np.int64)
    length = 0
    for index, piece in enumerate(pieces, 1):
        texts.append(decoder.decode(piece))
        length += len(texts[-1])
        pending = decoder.getstate()[0]
        offsets[index] = INSIDE_CHARACTER if pending else length
    texts.append(decoder.decode(b"", final=True))
    offsets[-1] = length + len(texts[-1])
    return Decoded("".join(texts), offsets)


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte: itself where Latin-1 prints it, else the next free one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}
