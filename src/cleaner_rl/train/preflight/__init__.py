"""Runs two real steps of a recipe on this machine and says whether the whole run can be trusted to it.

`run_preflight` trains in a folder of its own, with a witness in verl's processes (`witness`), and compares what reached
the update with what the store holds (`exactness`). Beside that it measures what the run needs: memory, sandbox, cores,
disk and time (`capacity`). The result is a list of findings with a verdict, and a page (`page`).

Limits: trainer mode `sync`. Of a run with stages the first one is tried. The bounds for bfloat16 and float16 come from
what is usual on GPUs and were not measured here.
"""

from cleaner_rl.train.preflight.findings import Finding, Preflight, Verdict
from cleaner_rl.train.preflight.run import run_preflight

__all__ = ["Finding", "Preflight", "Verdict", "run_preflight"]
