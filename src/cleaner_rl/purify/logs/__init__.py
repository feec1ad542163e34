"""Logs of other tools: read as trajectories, repaired in hindsight, written again.

- `formats`: what a record means, one short file a source, found as plug-ins.
- `containers`, `sinks`, `places`: how records lie in files (JSONL, JSON, Parquet, Inspect's zip), streaming both ways,
  here or in an object store.
- `frames`: messages with their texts moved into spans, so that everything else comes back as it was.
- `messages`, `parts`, `calls`: chat messages to turns and back. `chats`: to OpenAI's form.
- `judging`, `tracebacks`: whether a logged call worked; unsure means untouched.
- `cleaning`: hindsight within a log's borders. `summary`: what there is to say of it, added up.
- `plans`, `names`, `work`: many logs cut into units, and one unit done. `sft`: rows for supervised training.

Limits: text trajectories only, since logs have no tokens. What a format can't read is passed through as it is, and
counted. `cleaner_rl.purify` doesn't import this package: only who has logs needs it.
"""

from cleaner_rl.purify.logs.cleaning import Cleaned, clean
from cleaner_rl.purify.logs.formats import LogFormat, Reading, detect, log_format, log_format_names
from cleaner_rl.purify.logs.records import read_record, write_record

__all__ = [
    "Cleaned",
    "LogFormat",
    "Reading",
    "clean",
    "detect",
    "log_format",
    "log_format_names",
    "read_record",
    "write_record",
]
