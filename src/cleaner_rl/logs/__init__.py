"""Logs of other tools: read as trajectories, repaired in hindsight, written again.

Begin with `purify`, which is what `cleaner purify` calls, or with `preview`, which writes nothing.

- `purification`: `purify` and `preview`, from paths to a result. `plans`, `names`, `work`, `jobs`, `ray_jobs`: many
  logs cut into units, and the units done in processes or on Ray. `roc`: which attempts GRPO-RoC keeps. `report`,
  `summary`, `examples`, `reasons`: what was done, and why some failures were left alone.
- `formats`: how a record of each source is read and written; a short file per source, found as plug-ins.
- `containers`, `sinks`, `places`: how records are stored in files (JSONL, JSON, Parquet, Inspect's zip), streaming both
  ways, compressed or not, on local disks or in an object store. A file can be a record.
- `frames`: messages with their texts moved into spans, so that everything else comes back as it was.
- `messages`, `parts`, `calls`: chat messages to turns and back. `chats`: to OpenAI's form.
- `entries`: logs with an entry for each thing that happens, to messages. `fences`: commands in fenced blocks.
- `judging`: whether a logged call worked, by `signals` (exit codes and flags), `sentences` (what tools and harnesses
  say), `commands` (what a shell command runs) and `tracebacks`. A turn with an unsure result is never edited.
- `secrets`: keys and tokens in the records, found before anything else sees them, and taken out if that is wanted.
- `purified`: hindsight on a logged trajectory. `warrant`: whether a repair is warranted: the same purpose, nothing
  lost, a mistake of form, no bypass, no later words that refer to it.
- `sft`: rows for supervised fine-tuning; `trainers` writes them in the keys of a trainer, `rendering` with a tokenizer.
  `distillation`: rows for self-distillation. `row_files` writes both, `duplicates` takes out what is there twice.

Limits: text trajectories only, since logs have no tokens. What a format can't read is passed through as it is, and
counted. `cleaner_rl.purify` doesn't import this package: only programs that have logs need it.
"""

from cleaner_rl.logs.containers import LogError, PurifyError
from cleaner_rl.logs.distillation import distillation_rows
from cleaner_rl.logs.entries import CallPlaces, EntryKind, ResultPlaces
from cleaner_rl.logs.formats import LOG_ADAPTERS, LogFormat, Reading, detect, log_format, log_format_names
from cleaner_rl.logs.formats.base import Conversation, Record, log_of
from cleaner_rl.logs.formats.entries import EntriesFormat
from cleaner_rl.logs.formats.messages import MessagesFormat
from cleaner_rl.logs.jobs import WorkerKilledError
from cleaner_rl.logs.messages import Dialect, Unreadable
from cleaner_rl.logs.purification import Progress, PurifyResult, Stage, preview, purify
from cleaner_rl.logs.purified import PurifiedLog, purify_log
from cleaner_rl.logs.records import OPAQUE, read_record, write_record
from cleaner_rl.logs.row_files import SftKind
from cleaner_rl.logs.sft import UnsureTurns
from cleaner_rl.logs.summary import PurifySummary
from cleaner_rl.logs.trainers import Trainer
from cleaner_rl.logs.work import LogSettings

__all__ = [
    "LOG_ADAPTERS",
    "OPAQUE",
    "CallPlaces",
    "Conversation",
    "Dialect",
    "EntriesFormat",
    "EntryKind",
    "LogError",
    "LogFormat",
    "LogSettings",
    "MessagesFormat",
    "Progress",
    "PurifiedLog",
    "PurifyError",
    "PurifyResult",
    "PurifySummary",
    "Reading",
    "Record",
    "ResultPlaces",
    "SftKind",
    "Stage",
    "Trainer",
    "Unreadable",
    "UnsureTurns",
    "WorkerKilledError",
    "detect",
    "distillation_rows",
    "log_format",
    "log_format_names",
    "log_of",
    "preview",
    "purify",
    "purify_log",
    "read_record",
    "write_record",
]
