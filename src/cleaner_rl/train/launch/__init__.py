"""Starts, resumes and ends a run, on the machine that `cleaner train` is called on.

- `start` owns the run: the checks, the cold start, the stages, the sandbox node and verl's process.
- `checks` and `machine` find, before anything starts, what verl would only report minutes later.
- `resume` refuses a folder that holds a run of another recipe; `rewind` sets aside what a resumed run does again.
- `processes` starts and ends child processes; `node` is the sandbox node that a run starts for itself.
- `cold_start` builds verl's SFT command; `sft_data` holds the data sets that verl's SFT trainer loads.
"""
