"""What a call costs: CPU time of the whole service per call, beside a bare fork and a bare isolated fork.

- `bare_fork`: a separate program of under 120 lines, with the same isolation and limits, and nothing else.
- `measure`: runs both, in turns, so that a noisy machine disturbs them alike.
"""
