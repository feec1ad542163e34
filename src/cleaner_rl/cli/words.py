"""The system's errors in a person's words."""

from __future__ import annotations

import errno

ADVICE = {
    errno.EADDRINUSE: "another process has this port: choose another with --port",
    errno.ENOENT: "make the folder first, or mend the path",
    errno.EEXIST: "a file has this name: choose another",
    errno.ENOTDIR: "a file stands in the way: choose another path",
    errno.EACCES: "choose a place that this user may use",
    errno.EPERM: "choose a place that this user may use",
    errno.ENOSPC: "make room there; `cleaner doctor` shows what is free",
    errno.EROFS: "choose a place that can be written to",
}


def said(error: BaseException) -> str:
    """What happened, and what to do."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    advice = ADVICE.get(error.errno or 0)
    return what if advice is None else f"{what}; {advice}"
