"""Errors of the operating system in words: what happened, and what to do."""

from __future__ import annotations

import errno

ADVICE = {
    errno.EADDRINUSE: "another process has this port: choose another with --port",
    errno.ENOENT: "make the folder first, or correct the path",
    errno.EEXIST: "a file has this name: choose another",
    errno.ENOTDIR: "a file is in the way: choose another path",
    errno.EACCES: "choose a folder that this user may use",
    errno.EPERM: "choose a folder that this user may use",
    errno.ENOSPC: "free some space; `cleaner doctor` shows how much there is",
    errno.EROFS: "choose a place that can be written to",
}


def said(error: BaseException) -> str:
    """Return what happened, and what to do where that is known."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    advice = ADVICE.get(error.errno or 0)
    return what if advice is None else f"{what}; {advice}"
