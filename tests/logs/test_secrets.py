"""Secrets in logs: what is found, what is not, and that `--redact` leaves none in any file."""

from __future__ import annotations

import json
import random
import string
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cleaner_rl.cli import main
from cleaner_rl.logs import LogError, LogSettings, preview, purify, write_record
from cleaner_rl.logs.containers import ExtraMissingError
from cleaner_rl.logs.secrets import HINTS, OURS, OVERLAP, UNUSED, WINDOW, _windows, needed_scanner, secret_scanner
from cleaner_rl.trajectory import TextSpan, Trajectory, without_hindsight
from cleaner_rl.trajectory.store import read
from tests.logs.cases import CASES
from tests.logs.rendering import inspect, openai, verl

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def some(count: int, letters: str = LETTERS, seed: int = 1) -> str:
    """Letters of a token; one of them is a digit."""
    return "7" + "".join(random.Random(f"{seed} {count} {letters}").choices(letters, k=count - 1))


def private_key(name: str = "RSA ", line_break: str = "\n") -> str:
    body = line_break.join(some(64, LETTERS + "+/", seed) for seed in range(5))
    lines = (f"-----BEGIN {name}PRIVATE KEY-----", body, "ab3==", f"-----END {name}PRIVATE KEY-----")
    return line_break.join(lines)


JWT = ".".join(
    ("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0", some(42) + "b")
)
# Kind, and a text with the secret between bars. They are put together here, so that no scanner finds this file.
SECRETS: list[tuple[str, str]] = [
    ("anthropic-api-key", f"ANTHROPIC_API_KEY=|sk-ant-{'api03-'}{some(93, LETTERS + '-_')}AA|"),
    ("openai-token", f"key = '|sk-proj-{some(74, LETTERS + '-_')}|'"),
    ("openai-token", f"|sk-{some(48)}|"),
    ("openai-token", f"|sk-{some(20)}T3BlbkFJ{some(20)}|"),
    ("openrouter-api-key", f"|sk-or-v1-{some(64, HEX)}|"),
    ("groq-api-key", f"|gsk_{some(52)}|"),
    ("xai-api-key", f"|xai-{some(80)}|"),
    ("hugging-face-token", f"HF_TOKEN=|hf_{some(34)}|"),
    ("google-api-key", f"?key=|AIza{some(35, LETTERS + '-_')}|&q=1"),
    ("google-oauth-secret", f"|GOCSPX-{some(28)}|"),
    ("github-token", f"|github_pat_{some(22)}_{some(59)}|"),
    ("github-token", f"https://x-access-token@github.com |ghp_{some(36)}|"),
    ("npm-token", f"//registry.npmjs.org/:_authToken=|npm_{some(36)}|"),
    ("npm-token", "//registry.npmjs.org/:_authToken=|7f0b1c9e-1d2c-4a5b-8c7d-0123456789ab|"),
    ("databricks-token", f"|dapi{some(32, HEX)}|"),
    ("slack-token", f"|xapp-1-A{some(10)}-{'1' * 12}-{some(64, HEX)}|"),
    ("slack-token", f"|xoxb-{'1' * 12}-{some(24)}|"),
    ("authorization-header", f"curl -H 'Authorization: Bearer |{some(40)}|' http://x"),
    ("artifactory-credentials", f'key="|AKC{some(20)}|"'),
    ("aws-access-key", f"aws_access_key_id = |AKIA{some(16, string.ascii_uppercase + string.digits)}|"),
    ("aws-access-key", f'aws_secret_access_key = "|{some(40, LETTERS + "/+")}|"'),
    ("azure-storage-account-access-key", f"|AccountKey={some(86, LETTERS + '+/')}==|;"),
    ("basic-auth-credentials", "postgres://app:|s3cr3t-9x|@db.example.com/x"),
    ("basic-auth-credentials", "postgres://app:|s3cr3t@9x|@db.example.com/x"),
    ("cloudant-credentials", f"cloudant_apikey = |{some(64, HEX)}|"),
    ("discord-bot-token", f"|M{some(23)}.{some(6)}.{some(27)}|"),
    ("gitlab-token", f"|glpat-{some(20)}|"),
    ("ibm-cloud-iam-key", f"ibm_api_key = |{some(44)}|"),
    ("ibm-cos-hmac-credentials", f"secret_access_key = |{some(48, HEX)}|"),
    ("json-web-token", f"token: |{JWT}|"),
    ("mailchimp-access-key", f"|{some(32, HEX)}-us12|"),
    ("pypi-token", f"|pypi-AgEIcHlwaS5vcmc{some(80)}|"),
    ("sendgrid-api-key", f"|SG.{some(22)}.{some(43)}|"),
    ("softlayer-credentials", f"softlayer_api_key = |{some(64, HEX)}|"),
    ("square-oauth-secret", f"|sq0csp-{some(43)}|"),
    ("stripe-access-key", f"|sk_live_{some(99)}|"),
    ("telegram-bot-token", f"|123456789:{some(35)}|"),
    ("twilio-api-key", f"|SK{some(32, HEX)}|"),
    *(("private-key", f"|{private_key(name)}|") for name in ("", "RSA ", "EC ", "OPENSSH ")),
    ("private-key", f"|-----BEGIN PRIVATE KEY-----\n{some(64)}\n{some(64, seed=2)}|"),
    ("private-key", f"|PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\n{some(64)}\nPrivate-MAC: {some(40, HEX)}|"),
]
NO_SECRETS = [
    "sha256:" + some(64, HEX),
    "commit " + some(40, HEX),
    "id: 7f0b1c9e-1d2c-4a5b-8c7d-0123456789ab",
    "risk-assessment-of-the-whole-project, task-0123456789012345678901234567890123456789012345",
    "grep -rn 'BEGIN RSA PRIVATE KEY' . || true",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "postgres://user:password@localhost/db",
    "f'postgres://{user}:{password}@{host}'",
    "git clone https://${USER}:${TOKEN}@github.com/x/y",
    "Authorization: Bearer $TOKEN",
    "headers={'Authorization': f'Bearer {token}'}",
    "Authorization: Bearer YOUR_ACCESS_TOKEN_HERE",
    "self.assertEqual(key, a_very_long_name_of_a_function_in_the_module_of_tests)",
    "hf_hub_download(repo_id), hf_transfer, sk-learn, skimage",
    "data:image/png;base64," + some(50, LETTERS + "+/") + "AIza" + some(400, LETTERS + "+/"),
    "OrganizationMembershipView.create.organization_membership_for_user",
    "mailto:someone@example.com, git@github.com:x/y.git, http://127.0.0.1:8080/@scope/name",
]
WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "among words": lambda text: f"I ran it:\n\n{text}\n\nand it worked.",
    "escaped": lambda text: json.dumps({"a": text})[1:],
    "escaped twice": lambda text: json.dumps(json.dumps(f"x\n{text}\ny"))[1:],
    "coloured": lambda text: f"\x1b[32m{text}\x1b[0m",
    "JSON": lambda text: json.dumps({"a": [text]}, ensure_ascii=True),
}


def parts(text: str) -> tuple[str, str, str]:
    before, secret, after = text.split("|")
    return before, secret, after


def lines_of(secret: str) -> list[str]:
    """What must not be left of a secret: each line of a key."""
    return [line for line in secret.replace("\\n", "\n").splitlines() if not line.startswith("-----")]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(("kind", "text"), SECRETS, ids=[f"{place}-{kind}" for place, (kind, _) in enumerate(SECRETS)])
def test_a_secret_is_found_and_nothing_of_it_is_left(kind: str, text: str, written: str) -> None:
    before, secret, after = parts(text)
    found: Counter[str] = Counter()
    logged = WRITTEN[written](f"{before}{secret}{after}")
    scanner = needed_scanner()
    assert scanner.suspects([[logged]]) == [{logged}]
    redacted = scanner.redact(logged, found, {logged})
    assert found == {kind: 1}
    assert redacted == WRITTEN[written](f"{before}<redacted:{kind}>{after}")


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_only_looks_like_one_stays(text: str) -> None:
    found: Counter[str] = Counter()
    assert needed_scanner().redact(text, found) is text
    assert not found


def test_every_detector_is_used_or_left_out_for_a_reason() -> None:
    found: dict[str, type] = get_mapping_from_secret_type_to_class()
    plugins = {plugin.__name__ for plugin in found.values()}
    assert plugins == HINTS.keys() | UNUSED.keys()
    kinds = {kind for kind, _ in SECRETS}
    for secret_type, plugin in found.items():
        assert plugin.__name__ in UNUSED or "-".join(secret_type.lower().split()) in kinds
        assert plugin.__name__ in UNUSED or issubclass(plugin, RegexBasedDetector)
    assert {each.kind for each in OURS} <= kinds


def test_a_key_in_the_lines_of_a_patch_goes() -> None:
    key = private_key()
    patch = ["@@ -0,0 +1,9 @@", *(f"+{line}" for line in key.splitlines()), "+rest"]
    found: Counter[str] = Counter()
    redacted = needed_scanner().redact({"lines": patch}, found)
    assert redacted["lines"] == [patch[0], "+<redacted:private-key>", *[""] * 6, "", "+rest"]
    assert found == {"private-key": 1}


def test_a_name_of_a_field_can_be_a_secret_and_no_field_is_lost() -> None:
    one, other = f"hf_{some(34)}", f"hf_{some(34, seed=2)}"
    redacted = needed_scanner().redact({one: 1, other: 2, "<redacted:hugging-face-token>": 3}, Counter())
    assert sorted(redacted.values()) == [1, 2, 3]
    assert not {one, other} & redacted.keys()


@pytest.mark.parametrize("place", [0, WINDOW - 60, WINDOW - 10, WINDOW - OVERLAP - 5, 3 * WINDOW + 17])
def test_a_long_line_is_seen_in_windows_and_a_secret_between_two_is_found(place: int) -> None:
    secret = f"sk-ant-{some(95)}"
    text = f"{'. ' * 10_000}"[:place] + f" {secret} " + ". " * 10_000
    windows = list(_windows(text, needed_scanner()._detectors[0].hint))
    assert max(len(window) for _, window in windows) <= WINDOW
    assert sum(len(window) for _, window in windows) < 2 * len(text)
    assert [text[each.start : each.end] for each in needed_scanner().find(text)] == [secret]


def contents(folder: Path) -> Iterator[str]:
    """Everything that the files below a folder say, uncompressed."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            table = pq.read_table(path, partitioning=None)
            yield json.dumps(table.to_pylist(), default=str, ensure_ascii=False)
            yield str(table.schema.metadata)
        elif path.suffix == ".eval":
            with zipfile.ZipFile(path) as archive:
                yield from (archive.read(name).decode() for name in archive.namelist())
        elif path.is_file():
            yield path.read_text(errors="surrogateescape")


def planted(rng: random.Random, record: Any, texts: list[str]) -> Any:
    """The record with a text at the end of some of its strings."""
    if isinstance(record, str):
        return f"{record} {rng.choice(texts)}" if len(record) > 3 and rng.random() < 0.5 else record
    if isinstance(record, list):
        return [planted(rng, each, texts) for each in record]
    if isinstance(record, dict):
        kept = {"role", "type", "id", "tool_call_id", "name", "model", "function", "call_id", "uuid"}
        return {
            name: each if name in kept and isinstance(each, str) else planted(rng, each, texts)
            for name, each in record.items()
        }
    return record


@st.composite
def folders(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    chosen = draw(st.lists(st.sampled_from(SECRETS), min_size=1, max_size=3))
    texts = ["".join(parts(text)) for _, text in chosen]
    cases = draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=2))
    rng = random.Random(draw(st.integers(0, 1_000_000)))
    files = {name: [planted(rng, form(each), texts) for each in cases] for name, form in FORMS.items()}
    return {**files, "notes": texts}, [line for _, text in chosen for line in lines_of(parts(text)[1])]


FORMS = {"openai": openai, "verl": verl, "inspect": inspect}


def write_folder(folder: Path, files: dict[str, Any]) -> None:
    folder.mkdir()
    for name in ("openai", "verl"):
        text = "".join(json.dumps(each) + "\n" for each in files[name])
        (folder / f"{name}.jsonl").write_text(f"{text}{{broken {json.dumps(files['notes'][0])}\n")
    (folder / "list.json").write_text(json.dumps(files["openai"]))
    with zipfile.ZipFile(folder / "run.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "args": files["notes"]}))
        for number, sample in enumerate(files["inspect"]):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    (folder / "run.json").write_text(json.dumps({"eval": {"args": files["notes"]}, "samples": files["inspect"]}))
    rows = [
        {"messages": json.dumps(each["messages"]), "trajectory": json.dumps(each["messages"])}
        for each in files["openai"]
    ]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"note": files["notes"][0]})
    pq.write_table(table, folder / "rows.parquet")
    (folder / "notes.txt").write_text(files["notes"][0])


@given(folders())
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_no_secret_is_left_in_any_file(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[dict[str, Any], list[str]]
) -> None:
    files, secrets = made
    folder = tmp_path_factory.mktemp("logs")
    write_folder(folder / "in", files)
    wanted = LogSettings(sft="jsonl", same=True, redact=True)  # type: ignore[arg-type]
    result = purify(folder / "in", folder / "out", wanted)
    assert result.summary.secrets
    said = [*contents(folder / "out"), json.dumps(result.to_json()), result.as_text()]
    for secret in secrets:
        for text in said:
            assert secret not in text
            assert json.dumps(secret)[1:-1] not in text
    # What is judged and repaired is the redacted record, and undoing gives that back.
    for each in read(folder / "out/store"):
        record = write_record(without_hindsight(cast("Trajectory[TextSpan]", each)))
        assert needed_scanner().redact(record, Counter()) is record


def log_with(folder: Path, text: str) -> Path:
    records = [openai(CASES[0]), openai(CASES[4])]
    records[1]["messages"][1]["content"] += f" {text}"
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, ["purify", *map(str, arguments), "--no-replay"])


def test_the_summary_names_kinds_and_places_and_never_the_secret(tmp_path: Path) -> None:
    secret = f"sk-ant-{some(90)}"
    path = log_with(tmp_path, f"{secret} and again {secret}")
    told = run(path, "--out", tmp_path / "out")
    assert f"2  anthropic-api-key, first in {path}:2" in told.stdout
    assert "--redact replaces them" in told.stdout
    assert secret not in told.output
    assert any(secret in each for each in contents(tmp_path / "out"))
    dry = json.loads(run(path, "--dry-run", "--json").stdout)["secrets"]
    places = [{"file": str(path), "line": 2}]
    assert dry["found"] == {"anthropic-api-key": {"count": 2, "places": places}}
    assert (dry["scanner"], dry["redacted"]) == ("detect-secrets 1.5.0", False)
    redacted = run(path, "--out", tmp_path / "redacted", "--redact")
    assert "2 found (detect-secrets 1.5.0), redacted:" in redacted.stdout
    assert not any(secret in each for each in contents(tmp_path / "redacted"))
    clean = run(log_with(tmp_path, "nothing"), "--dry-run")
    assert "secrets      none found (detect-secrets 1.5.0)" in clean.stdout


def test_a_folder_with_redacted_results_is_not_continued_without(tmp_path: Path) -> None:
    path = log_with(tmp_path, f"hf_{some(34)}")
    assert run(path, "--out", tmp_path / "out", "--redact").exit_code == 0
    assert "--redact was on, is off" in run(path, "--out", tmp_path / "out").output


def test_secrets_of_several_units_and_of_a_resumed_run_add_up(tmp_path: Path) -> None:
    token = f"hf_{some(34)}"
    for name in "abcde":
        (tmp_path / "logs" / name).mkdir(parents=True)
        log_with(tmp_path / "logs" / name, token)
    wanted = LogSettings(piece_bytes=2_000)
    first = purify(tmp_path / "logs", tmp_path / "out", wanted).summary.secrets
    assert purify(tmp_path / "logs", tmp_path / "out", wanted).summary.secrets == first
    found = first["hugging-face-token"]
    assert found.count == 5
    assert found.places == tuple((str(tmp_path / "logs" / name / "log.jsonl"), 2) for name in "abc")


def test_a_store_is_looked_at_and_not_redacted(tmp_path: Path) -> None:
    secret = f"hf_{some(34)}"
    purify(log_with(tmp_path, secret), tmp_path / "out")
    seen = preview(tmp_path / "out/store").summary.secrets
    assert seen["hugging-face-token"].count >= 1
    with pytest.raises(LogError, match="only logs can be redacted"):
        preview(tmp_path / "out/store", LogSettings(redact=True))


def test_a_column_that_nobody_can_look_into_is_not_written_redacted(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{**openai(CASES[0]), "raw": b"1"}]), tmp_path / "a.parquet")
    with pytest.raises(LogError, match="'raw' \\(binary\\)"):
        purify(tmp_path / "a.parquet", tmp_path / "out", LogSettings(same=True, redact=True))
    purify(tmp_path / "a.parquet", tmp_path / "other", LogSettings(redact=True))


def test_without_the_scanner_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.core.plugins.util", None)
    secret_scanner.cache_clear()
    try:
        path = log_with(tmp_path, f"hf_{some(34)}")
        told = run(path, "--dry-run")
        assert "secrets      not looked for" in told.stdout
        assert "pip install 'cleaner-rl[secrets]'" in told.stdout
        assert json.loads(run(path, "--dry-run", "--json").stdout)["secrets"]["scanner"] is None
        refused = run(path, "--out", tmp_path / "out", "--redact")
        assert refused.exit_code == 1
        assert "pip install 'cleaner-rl[secrets]'" in refused.output
        assert not (tmp_path / "out").exists()
        with pytest.raises(ExtraMissingError):
            preview(path, LogSettings(redact=True))
    finally:
        secret_scanner.cache_clear()
