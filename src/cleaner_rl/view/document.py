"""The frame of every page that is written to a file: reports, preflights and exports of the viewer.

A page is one file. It asks no address for anything, and unless its policy says otherwise, nothing in it is run.
"""

from __future__ import annotations

from html import escape

NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'"
"""The policy of a page that only has text, style and drawings."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, body: str, style: str, policy: str = NO_SCRIPTS) -> str:
    """Return a whole page around a body of HTML; the title is text, and is escaped."""
    return PAGE.format(title=escape(title), body=body, style=style, policy=policy)
