"""What commands print: text that no terminal obeys, and errors of the operating system in words."""

from __future__ import annotations

import errno
import unicodedata

import click

ADVICE = {
    errno.EADDRINUSE: "another process has this port: choose another with --port",
    errno.ENOENT: "make the folder first, or correct the path",
    errno.EEXIST: "a file has this name: choose another",
    errno.ENOTDIR: "a file is in the way: choose another path",
    errno.EACCES: "choose a folder that this user may use",
    errno.EPERM: "choose a folder that this user may use",
    errno.ENOSPC: "free some space",
    errno.EROFS: "choose a place that can be written to",
}

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of characters that are no text: a terminal obeys them, or shows nothing, or can't take them."""


def visible(text: str) -> str:
    """Return text with its control characters as escapes: names of files and members may hold any."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in UNSEEN and each not in "\n\t" else each
        for each in text
    )


def show(text: str, nl: bool = True, err: bool = False) -> None:
    """Print text that may hold what others wrote."""
    click.echo(visible(text), nl=nl, err=err)


def said(error: BaseException) -> str:
    """Return what happened, and what to do where that is known."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    advice = ADVICE.get(error.errno or 0)
    return what if advice is None else f"{what}; {advice}"
