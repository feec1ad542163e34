from __future__ import annotations

from click.testing import CliRunner

from cleaner_rl import __version__
from cleaner_rl.cli import main


def test_the_command_says_its_version_and_what_it_is_for() -> None:
    runner = CliRunner()
    assert runner.invoke(main, ["--version"]).output == f"cleaner, version {__version__}\n"
    shown = runner.invoke(main, ["-h"])
    assert shown.exit_code == 0
    assert "clean trajectories" in shown.output
