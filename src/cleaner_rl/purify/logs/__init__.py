"""Logs of other tools: read as trajectories, repaired in hindsight, written again.

- `formats`: what a record means, one short file a source, found as plug-ins.
- `containers`: how records lie in files (JSONL, JSON, Parquet, Inspect's zip), streaming both ways.
- `frames`: messages with their texts moved into spans, so that everything else comes back as it was.
- `messages`, `calls`: chat messages to turns and back. `judging`: whether a logged call worked; unsure means
  untouched.
- `cleaning`: hindsight on a log, and what there is to say of it. `summary`: that, added up.
- `sft`: the result as rows for supervised training.

Limits: text trajectories only, since logs have no tokens. What a format can't read is passed through as it is, and
counted. `cleaner_rl.purify` doesn't import this package: it loads pyarrow."""
