"""Finds secrets in logs, such as keys of APIs, and takes them out if that is wanted.

What a secret looks like is known by detect-secrets (Yelp), a package of the extra `secrets`; `OURS` adds kinds that it
lacks. Text is looked at in three steps, so that nearly all of it costs one pass of a finite automaton:

1. `HINTS`: a short piece of text that each kind of secret has. Arrow looks for all of them at once, in the texts of
   many records.
2. In a text with a hint, each kind's own hint is looked for.
3. The pattern of a kind runs on the lines that have its hint. A long line is cut into overlapping windows, so that no
   pattern takes more than time in proportion to the text.

A record's text may hold JSON in a string, so line breaks and quotes may be escaped, once or several times. Both are
made plain before a pattern sees them. A key of several lines is also found where each line is a string of a list.

Limits: passwords without a form of their own are not found, nor is a secret that is split, encoded or cut short.
detect-secrets' detectors of entropy and of keywords are not used: they take hashes and ids for secrets.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import compress
from typing import Any, NamedTuple

import pyarrow as pa

from cleaner_rl.logs.containers import Broken, ExtraMissingError
from cleaner_rl.tools import read_json

INSTALL = "pip install 'cleaner-rl[secrets]'"
SHORTEST = 8
"""No secret that is looked for is in a shorter text."""
BATCH = 4 << 20
"""Characters that Arrow looks at in one call."""
WINDOW, OVERLAP = 4096, 1100
"""Characters of a long line that a pattern sees at once, and those that two windows share: the longest token's."""
KEY = 32_768
"""The most characters of a private key, from its first line to its last."""


class Hint(NamedTuple):
    """How a detector of detect-secrets is used."""

    pattern: str
    """A piece of text without which there is no such secret, for Arrow's regular expressions and for Python's."""
    group: int = 0
    """The group of its patterns that is the secret; 0 is all of a match."""
    rest: str = r"[\w\-]*"
    """What may follow a match and belongs to the secret: some patterns are shorter than today's tokens."""
    apart: bool = False
    """Whether no letter may be right before a match. Without that, a pattern with a loop could begin anywhere in it."""


HINTS = {
    "ArtifactoryDetector": Hint(r"AKC|AP[0-9A-F][a-zA-Z0-9]{4}", rest=""),
    "AWSKeyDetector": Hint(r"A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA|(?i:aws.{0,20}(?:key|pw|pass|token))", 1),
    "AzureStorageKeyDetector": Hint(r"AccountKey="),
    "BasicAuthDetector": Hint(r":(?:\\*/){2}[^/\s]+@", 1, r"[^\s/?#\"'\\<>]*(?=@)"),
    "CloudantDetector": Hint(r"(?i:cl[a-z]{0,6}[-_]?(?:api)?(?:key|pw|pass|token)|cloudant)", 1),
    "DiscordBotTokenDetector": Hint(r"[MNO][\w\-]{4,}\.[\w\-]{6}\."),
    "GitHubTokenDetector": Hint(r"gh[pousr]_"),
    "GitLabTokenDetector": Hint(r"gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941"),
    "IbmCloudIamDetector": Hint(r"(?i:(?:key|pwd|pass|password|token)[\"']?\]? *(?:[=:]|=>| ) *[\"']?[\w\-]{16})", 1),
    "IbmCosHmacDetector": Hint(r"(?i:key[\"']?\]? *(?:[=:]|=>| ) *[\"']?[a-f0-9]{6})", 1),
    "JwtTokenDetector": Hint(r"eyJ", rest=r"[\w\-.+/=]*", apart=True),
    "MailchimpDetector": Hint(r"[0-9a-z]-us[0-9]"),
    "OpenAIDetector": Hint(r"T3BlbkFJ", apart=True),
    "PypiTokenDetector": Hint(r"pypi-AgE"),
    "SendGridDetector": Hint(r"SG\."),
    "SlackDetector": Hint(r"(?i:xox[abposr]-|hooks\.slack\.com)"),
    "SoftlayerDetector": Hint(r"(?i:softlayer|sl[-_]?(?:api)?[-_]?(?:key|pwd|pass|token))", 1),
    "SquareOAuthDetector": Hint(r"sq0csp-"),
    "StripeDetector": Hint(r"[rs]k_live_"),
    "TelegramBotTokenDetector": Hint(r"[0-9]{8}:[\w\-]{6}"),
    "TwilioKeyDetector": Hint(r"(?:AC|SK)[a-z0-9]{8}"),
}
"""The detectors of detect-secrets that are used."""
UNUSED = {
    "Base64HighEntropyString": "takes ids and data for secrets",
    "HexHighEntropyString": "takes hashes for secrets",
    "IPPublicDetector": "an address is no secret",
    "KeywordDetector": "takes every value of a variable named `password` for a secret, tests included",
    "NpmDetector": "takes the rest of the line for the token, and quadratic time",
    "PrivateKeyDetector": "finds the first line of a key only; `_keys` finds all of it",
}
"""The other ones, and why they are not used."""


class Ours(NamedTuple):
    """A kind of secret that detect-secrets doesn't know."""

    kind: str
    hint: str
    pattern: str
    """Its first group is the secret, or all of it if there is no group."""


OURS = (
    Ours("anthropic-api-key", r"sk-ant-", r"sk-ant-[\w\-]{20,}"),
    Ours("openai-token", r"sk-(?:proj|svcacct|admin)-", r"sk-(?:proj|svcacct|admin)-[\w\-]{20,}"),
    Ours("openai-token", r"sk-[A-Za-z0-9]{8}", r"\bsk-[A-Za-z0-9]{48}\b"),
    Ours("openrouter-api-key", r"sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    Ours("groq-api-key", r"gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    Ours("xai-api-key", r"xai-[A-Za-z0-9]{8}", r"\bxai-[A-Za-z0-9]{40,}"),
    Ours("hugging-face-token", r"hf_[A-Za-z0-9]{8}", r"\bhf_[A-Za-z0-9]{30,}"),
    Ours("google-api-key", r"AIza", r"(?<![\w+/\-])AIza[\w\-]{35}(?![\w+/\-])"),
    Ours("google-oauth-secret", r"GOCSPX-", r"GOCSPX-[\w\-]{28,}"),
    Ours("github-token", r"github_pat_", r"github_pat_\w{22,}"),
    Ours("npm-token", r"npm_[A-Za-z0-9]{8}", r"\bnpm_[A-Za-z0-9]{36}"),
    Ours("npm-token", r"_authToken=", r"_authToken=\s{0,4}([A-Fa-f0-9\-]{36})"),
    Ours("databricks-token", r"dapi[a-f0-9]{8}", r"\bdapi[a-f0-9]{32}(?:-\d)?"),
    Ours("slack-token", r"xapp-", r"\bxapp-\d-[A-Za-z0-9]+-\d+-[a-f0-9]{32,}"),
    Ours(
        "authorization-header",
        r"(?i:authorization)",
        r"(?i:authorization)[\"']?\s{0,4}[:=,]\s{0,4}[fbr]?[\"']?\s{0,2}(?i:bearer|basic|token)\s{1,4}([\w\-.~+/=]{16,})",
    ),
)
NEED_DIGITS = {"ArtifactoryDetector", "DiscordBotTokenDetector", "IbmCloudIamDetector", "authorization-header"}
"""Kinds whose patterns also fit long names in plain letters; a secret of theirs has a digit."""
PLACEHOLDERS = re.compile(
    r"x+|\.+|(?:my|your|the|db|user)?[-_]?(?:password|passwd|pass|pwd|pw|secret|token|key)|change[-_]?me", re.IGNORECASE
)
"""Words that stand for a password in examples of addresses."""

KEY_FIRST = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
KEY_LAST = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: [0-9a-f]+")
KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{20}")
KEY_LINES = re.compile(r"(?:(?:\s|\\+[nrt])*(?:[A-Za-z0-9+/=]{20,}|[A-Za-z][A-Za-z\-]{2,30}: [^\n\\]{1,100}))*")
"""What follows the first line of a key that was cut off."""
PRIVATE_KEY = "private-key"
AROUND = ' \t\r\n":'
"""What a pattern may take with a secret, and is none of it."""
ESCAPED = re.compile(r"(\w?)(\\+)([nrt\"'])")
"""Escaped characters of JSON and of programs, with the letter before."""

COLOURS = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,16}m")
"""Colours of a terminal: their last letter is no part of the word behind it."""


class Secret(NamedTuple):
    """A place in a text."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class _Detector:
    kind: str
    hint: re.Pattern[str]
    patterns: tuple[re.Pattern[str], ...]
    group: int
    rest: re.Pattern[str]
    is_secret: Callable[[str], bool]

    def find(self, text: str) -> Iterator[Secret]:
        """Yield the secrets of this kind; a place can be found twice."""
        for offset, window in _windows(text, self.hint):
            for pattern in self.patterns:
                group = min(self.group, pattern.groups)
                for match in pattern.finditer(window):
                    start, end = (offset + each for each in match.span(group))
                    around = text[start:end]
                    start += len(around) - len(around.lstrip(AROUND))
                    end -= len(around) - len(around.rstrip(AROUND))
                    rest = self.rest.match(text, end)
                    end = end if rest is None else rest.end()
                    if end > start and self.is_secret(text[start:end]):
                        yield Secret(start, end, self.kind)


class SecretScanner:
    """Finds secrets in values of JSON, and replaces them."""

    def __init__(self, name: str, detectors: Sequence[_Detector]) -> None:
        self.name = name
        """The scanner and its version."""
        self._detectors = detectors
        self._hints = "|".join(["PRIVATE KEY", "PuTTY-User", *(each.hint.pattern for each in detectors)])

    def suspects(self, values: Sequence[Any]) -> list[set[str]]:
        """Return for each value its texts with a hint of a secret."""
        found: list[set[str]] = [set() for _ in values]
        texts: list[set[str]] = []
        size = 0
        for place, value in enumerate(values):
            texts.append(_texts(value))
            size += sum(map(len, texts[-1]))
            if size >= BATCH or place == len(values) - 1:
                first = place + 1 - len(texts)
                # All texts of a value at once, which nearly always have no hint; else each of them.
                for owner, hinted in enumerate(self._hinted(["\n".join(each) for each in texts])):
                    if hinted:
                        some = list(texts[owner])
                        found[first + owner].update(compress(some, self._hinted(some)))
                texts, size = [], 0
        return found

    def redact(self, value: Any, found: Counter[str], suspects: set[str] | None = None) -> Any:
        """Return a value of JSON without its secrets, which are counted. A value without any is returned itself.

        `suspects` are the texts to look at; None: all.
        """
        if isinstance(value, str):
            return value if suspects is not None and value not in suspects else self._redact_text(value, found)
        if isinstance(value, Broken):
            text = self._redact_text(value.text, found)
            return value if text is value.text else Broken(text, value.reason)
        if isinstance(value, list):
            if any(isinstance(each, str) and "PRIVATE KEY" in each for each in value):
                without = _without_keys_in_lines(value, found)
                value, suspects = without, suspects if without is value else None
            items = [self.redact(each, found, suspects) for each in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if isinstance(value, dict):
            return self._redact_object(value, found, suspects)
        return value

    def find(self, text: str) -> list[Secret]:
        """Return the secrets of a text, in order. None overlaps another."""
        plain = COLOURS.sub(lambda match: " " * len(match[0]), text)
        if "\\" in plain:
            plain = ESCAPED.sub(_plain, plain)
        every = [*_keys(text), *(each for detector in self._detectors for each in detector.find(plain))]
        kept: list[Secret] = []
        for each in sorted(every, key=lambda secret: (secret.start, -secret.end)):
            if kept and each.start < kept[-1].end:
                kept[-1] = kept[-1]._replace(end=max(kept[-1].end, each.end))
            else:
                kept.append(each)
        return kept

    def _hinted(self, texts: Sequence[str]) -> list[bool]:
        import pyarrow.compute as pc  # which takes longer to load than all else here

        try:
            array = pa.array(texts, pa.large_string())
        except UnicodeEncodeError:  # a lone surrogate, which Arrow can't hold
            return [True] * len(texts)
        found: list[bool] = pc.match_substring_regex(array, self._hints).to_pylist()
        return found

    def _redact_text(self, text: str, found: Counter[str]) -> str:
        inner = _json_in(text)
        if inner is not None:
            # Only inside its strings, so that it stays JSON. Escapes of all kinds are plain there.
            changed = self.redact(inner, found)
            return text if changed is inner else json.dumps(changed, ensure_ascii=False)
        secrets = self.find(text)
        if not secrets:
            return text
        parts, position = [], 0
        for start, end, kind in secrets:
            parts += [text[position:start], marker(kind)]
            position = end
            found[kind] += 1
        return "".join((*parts, text[position:]))

    def _redact_object(self, value: dict[str, Any], found: Counter[str], suspects: set[str] | None) -> dict[str, Any]:
        made: dict[str, Any] = {}
        changed = False
        for name, inner in value.items():
            new_name, new = self.redact(name, found, suspects), self.redact(inner, found, suspects)
            while new_name is not name and (new_name in made or new_name in value):
                new_name += "'"
            changed |= new_name is not name or new is not inner
            made[new_name] = new
        return made if changed else value


def marker(kind: str) -> str:
    """Return what is written in the place of a secret."""
    return f"<redacted:{kind}>"


@cache
def secret_scanner() -> SecretScanner | None:
    """Return the scanner; None if detect-secrets is not installed."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.filters.heuristic import is_not_alphanumeric_string, is_templated_secret
        from detect_secrets.plugins.jwt import JwtTokenDetector
    except ImportError:
        return None

    def is_secret(name: str) -> Callable[[str], bool]:
        def check(text: str) -> bool:
            if is_templated_secret(text) or is_not_alphanumeric_string(text):
                return False
            if name in NEED_DIGITS and not re.search(r"\d", text):
                return False
            if name == "BasicAuthDetector" and (PLACEHOLDERS.fullmatch(text) or text[0] in "{%"):
                return False
            return name != "JwtTokenDetector" or JwtTokenDetector.is_formally_valid(text.rstrip("."))

        return check

    nothing = re.compile("")
    detectors = [
        _Detector(each.kind, re.compile(each.hint), (re.compile(each.pattern),), 1, nothing, is_secret(each.kind))
        for each in OURS
    ]
    plugins: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for secret_type, plugin in plugins.items():
        if (hint := HINTS.get(plugin.__name__)) is not None:
            kind = re.sub(r"[^a-z0-9]+", "-", secret_type.lower()).strip("-")
            patterns: tuple[re.Pattern[str], ...] = tuple(plugin.denylist)
            if hint.apart:
                patterns = tuple(re.compile(rf"(?<![\w\-])(?:{each.pattern})", each.flags) for each in patterns)
            check = is_secret(plugin.__name__)
            detectors.append(
                _Detector(kind, re.compile(hint.pattern), patterns, hint.group, re.compile(hint.rest), check)
            )
    return SecretScanner(f"detect-secrets {version('detect-secrets')}", detectors)


def needed_scanner() -> SecretScanner:
    """Return the scanner. Raises `ExtraMissingError` if there is none."""
    scanner = secret_scanner()
    if scanner is None:
        raise ExtraMissingError(f"Secrets can't be redacted: detect-secrets is not installed. Install it: {INSTALL}")
    return scanner


def _plain(escaped: re.Match[str]) -> str:
    """Return an escaped character as it is, and blanks, so that all other text keeps its place."""
    letter, backslashes, name = escaped.groups()
    blanks = " " * len(backslashes)
    if name in "\"'":
        return f"{letter}{name}{blanks}" if letter else f"{blanks}{name}"
    return f"{letter}{blanks}{chr(10) if name == 'n' else ' '}"


def _texts(value: Any) -> set[str]:
    """Return the texts of a value of JSON that are long enough to hold a secret."""
    found: set[str] = set()
    names: set[Any] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if len(each) >= SHORTEST:
                found.add(each)
        elif isinstance(each, dict):
            waiting += each.values()
            names.update(each)  # most are the same in all objects
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, Broken):
            found.add(each.text)
    found.update(each for each in names if isinstance(each, str) and len(each) >= SHORTEST)
    return found


def _windows(text: str, hint: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with a hint, in windows; each with its place in the text."""
    end = 0
    while (match := hint.search(text, end)) is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        for offset in range(start, max(end - OVERLAP, start + 1), WINDOW - OVERLAP):
            yield offset, text[offset : min(offset + WINDOW, end)]


def _json_in(text: str) -> Any:
    """Return the object or list that a text is as JSON; None if it is none."""
    if not text.lstrip().startswith(("{", "[")) or not text.rstrip().endswith(("}", "]")):
        return None
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _keys(text: str) -> Iterator[Secret]:
    """Yield the private keys of a text, from the first line of each to its last."""
    position = 0
    while (first := KEY_FIRST.search(text, position)) is not None:
        following = KEY_FIRST.search(text, first.end(), first.start() + KEY)
        last = KEY_LAST.search(text, first.end(), first.start() + KEY if following is None else following.start())
        end = last.end() if last is not None else _end_of_lines(text, first.end())
        if KEY_BODY.search(text, first.end(), end) is not None:
            yield Secret(first.start(), end, PRIVATE_KEY)
        position = max(end, first.end())


def _end_of_lines(text: str, start: int) -> int:
    match = KEY_LINES.match(text, start, start + KEY)
    return start if match is None else match.end()


def _without_keys_in_lines(lines: list[Any], found: Counter[str]) -> list[Any]:
    """Return a list of texts without the private keys that reach over several of them."""
    if not all(isinstance(each, str) for each in lines):
        return lines
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    made = lines
    for start, end, kind in _keys("\n".join(lines)):
        touched = [place for place, first in enumerate(starts[:-1]) if first < end and start < starts[place + 1] - 1]
        if len(touched) < 2:
            continue  # it is in one of them, and found there
        made = list(made)
        for place in touched:
            before = lines[place][: max(start - starts[place], 0)]
            after = lines[place][max(end - starts[place], 0) :]
            made[place] = f"{before}{marker(kind) if place == touched[0] else ''}{after}"
        found[kind] += 1
    return made
