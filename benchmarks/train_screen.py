"""Records what `cleaner train` shows: `python -m benchmarks.train_screen recipes/tiny-cpu.yaml --set run.steps=3`.

The command runs in a terminal of its own, in a new folder, with the recipe and options that are given. Each line is
drawn with the time at which it came, as an SVG that shows the lines one after the other. A wait of more than two
seconds is shown as two.
"""

from __future__ import annotations

import argparse
import os
import pty
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap

COLUMNS, MARGIN = 118, 9
"""Characters of a line, and those that its time takes."""
LETTER, LINE, EDGE = 7.225, 18, 16
"""Width of a letter of 12 px, height of a line, and the space around all of them."""
LONGEST_WAIT = 2.0
STYLE = (
    "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}"
    ".time{fill:#8b949e}.command{fill:#7ee787}@keyframes come{to{visibility:visible}}"
    "@media (prefers-reduced-motion:no-preference){g{visibility:hidden;animation:come 0s forwards}}"
)


def record(command: list[str], folder: Path) -> list[tuple[float, str]]:
    """Run a command in a terminal; the lines that it shows, each with the seconds since the start."""
    begun = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvp(command[0], command)
    lines = [(time.monotonic() - begun, text.replace(f"{folder}/", "")) for text in _lines(terminal)]
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status:
        raise SystemExit("\n".join([*(text for _, text in lines), f"the command ended with {status}"]))
    return lines


def _lines(terminal: int) -> Iterator[str]:
    rest = ""
    while True:
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            return
        *whole, rest = (rest + read.decode()).split("\r\n")
        yield from whole


def drawn(command: str, lines: Sequence[tuple[float, str]]) -> str:
    """Return the lines as an SVG."""
    shown = [(0.0, 0.0, "command", f"$ {command}")]
    last = delay = 0.0
    for seconds, text in lines:
        delay += min(seconds - last, LONGEST_WAIT)
        last = seconds
        shown.append((delay, seconds, "", text))
    parts, height, told = [], EDGE, "0:00"
    for delay, seconds, kind, text in shown:
        stamp = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
        rows = [f'<text class="time" x="{EDGE}" y="{height + 12}">{stamp:>6}</text>'] if stamp != told else []
        told = stamp
        for row in wrap(text, COLUMNS, drop_whitespace=False, subsequent_indent="  ", break_on_hyphens=False) or [""]:
            place = f'x="{EDGE + MARGIN * LETTER:g}" y="{height + 12}"'
            rows.append(f'<text class="{kind}" {place}>{escape(row)}</text>')
            height += LINE
        parts.append(f'<g style="animation-delay:{delay:.1f}s">{"".join(rows)}</g>')
    size = f'width="{2 * EDGE + (COLUMNS + MARGIN) * LETTER:.0f}" height="{height + EDGE}"'
    back = '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(command)}">'
        f"<style>{STYLE}</style>{back}{''.join(parts)}</svg>\n"
    )


def main() -> None:
    """Record and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="as of `cleaner train`")
    parser.add_argument("--save", type=Path, default=Path("docs/images/train-screen.svg"))
    given = parser.parse_args()
    options = [f"--set={each}" for each in given.settings]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # Ray's sockets need a short path
        lines = record(["cleaner", "train", str(given.recipe.resolve()), *options], Path(folder))
    command = " ".join(["cleaner train", str(given.recipe), *options])
    given.save.write_text(drawn(command, lines), encoding="utf-8")
    sys.stderr.write(f"{given.save}: {len(lines)} lines, the first after {lines[0][0]:.1f} s\n")


if __name__ == "__main__":
    main()
