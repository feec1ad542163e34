"""`python -m cleaner_sandbox`: the command."""

from cleaner_sandbox.cli import sandbox

sandbox(prog_name="cleaner-sandbox")
