"""What produces the figures: each module is a command, `python -m benchmarks.NAME --json`."""
