"""Serves a review to this machine's browser: one page, what it shows, and an address for answers.

Only a request of this page can answer: it has to be JSON, which a page elsewhere can't send without being asked first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cleaner_rl.trajectory import Said
from cleaner_rl.view.assets import asset
from cleaner_rl.view.document import html_page
from cleaner_rl.view.page import script_hash

if TYPE_CHECKING:
    from cleaner_rl.view.app import Receive, Scope, Send
    from cleaner_rl.view.review import Review

LARGEST = 10_000
"""Bytes of an answer."""
STYLE = """
#review { max-width: 72rem; margin: 0 auto; padding: 1rem 1.5rem 9rem; }
#review pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 24rem; overflow: auto; margin: 0;
  padding: .75rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  font: 13px/1.5 var(--mono); }
#review h1 { font-size: 1.15rem; margin: .5rem 0; }
#review h2 { font-size: .8rem; color: var(--muted); font-weight: 600; margin: 1rem 0 .3rem; }
#review .muted { color: var(--muted); margin: .2rem 0; }
#review nav { position: fixed; inset: auto 0 0 0; padding: .75rem 1.5rem; background: var(--sunken);
  border-top: 1px solid var(--line); display: flex; gap: .75rem; align-items: center; flex-wrap: wrap; }
#review button { padding: .45rem 1rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  color: var(--ink); font: inherit; cursor: pointer; }
#review button[aria-pressed=true] { border-color: var(--accent); background: var(--accent-soft); }
#review kbd { font: 12px var(--mono); color: var(--muted); margin-left: .4rem; }
#review table { border-collapse: collapse; margin-top: 1rem; }
#review th, #review td { text-align: left; padding: .35rem 1.25rem .35rem 0; border-bottom: 1px solid var(--line); }
"""
SCRIPT = """
const root = document.getElementById("review");
const answers = [["r", "right"], ["w", "wrong"], ["?", "can't tell"]];
let items = [], rates = {}, at = 0;
const make = (tag, text, inside = root) => {
  const made = document.createElement(tag);
  made.textContent = text;
  inside.append(made);
  return made;
};
const open = () => items.findIndex((item) => !item.said);
function show() {
  root.replaceChildren();
  const done = items.filter((item) => item.said).length;
  if (at >= items.length) return summary(done);
  const item = items[at];
  make("p", `${at + 1} of ${items.length}, ${done} judged. ${item.what}: ${item.place}`).className = "muted";
  make("h1", item.question);
  if (item.task) make("p", `Task: ${item.task}`).className = "muted";
  if (item.why) make("p", `Because ${item.why}.`).className = "muted";
  for (const [label, text] of item.texts) { make("h2", label); make("pre", text || "(nothing)"); }
  const bar = make("nav", "");
  for (const [key, said] of answers) {
    const button = make("button", said, bar);
    make("kbd", key, button);
    button.setAttribute("aria-pressed", String(item.said === said));
    button.onclick = () => answer(said);
  }
  make("span", "← and → go back and on; what you said is kept", bar).className = "muted";
  scrollTo(0, 0);
}
function summary(done) {
  make("h1", `${done} of ${items.length} judged`);
  const table = make("table", "");
  const head = make("tr", "", table);
  const names = ["decision", "judged", "wrong", "share that is wrong (95 %)", "can't tell"];
  for (const name of names) make("th", name, head);
  for (const [what, each] of Object.entries(rates)) {
    const row = make("tr", "", table);
    const share = each.judged ? `${each.percent} % (${each.interval[0]} to ${each.interval[1]})` : "";
    const cells = [what, `${each.judged} of ${each.sample}`, each.wrong, share, each.cant_tell];
    for (const cell of cells) make("td", cell, row);
  }
  make("p", "End the command with Ctrl-C: it says what to do with the answers.").className = "muted";
}
async function answer(said) {
  const item = items[at];
  const asked = { method: "POST", headers: { "content-type": "application/json" } };
  const told = await fetch("/api/answer", { ...asked, body: JSON.stringify({ id: item.id, said }) });
  if (!told.ok) return void alert("The answer was not kept: is the command still running?");
  rates = await told.json();
  item.said = said;
  at += 1;
  show();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const found = answers.find(([key]) => key === event.key.toLowerCase());
  if (found && at < items.length) answer(found[1]);
  if (event.key === "ArrowLeft" && at > 0) { at -= 1; show(); }
  if (event.key === "ArrowRight" && at < items.length) { at += 1; show(); }
});
fetch("/api/review").then((told) => told.json()).then((told) => {
  ({ items, rates } = told);
  at = open() < 0 ? items.length : open();
  show();
});
"""


@cache
def page() -> bytes:
    """Return the page."""
    script, style = SCRIPT, asset("app.css").decode() + STYLE
    policy = (
        f"default-src 'none'; script-src '{script_hash(script)}'; style-src '{script_hash(style)}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    body = f'<main id="review"></main>\n<script>{script}</script>'
    return html_page("Review", body, style, policy).encode()


class ReviewApplication:
    """Answers requests about one review; plain ASGI."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        from cleaner_rl.view.app import HEADERS

        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope, receive)
        headers = {**HEADERS, "content-type": kind, "content-length": str(len(body))}
        if kind.startswith("text/html"):
            del headers["content-security-policy"]  # the page has its own
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status.value, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[HTTPStatus, str, bytes]:
        from cleaner_rl.view.app import JSON, is_local

        def told(status: HTTPStatus, answer: Any) -> tuple[HTTPStatus, str, bytes]:
            return status, JSON, json.dumps(answer, ensure_ascii=False).encode(errors="replace")

        if not is_local(scope):
            return told(HTTPStatus.FORBIDDEN, {"problem": "this server answers to 127.0.0.1 and localhost alone"})
        asked = scope["method"], scope["path"]
        if asked == ("GET", "/"):
            return HTTPStatus.OK, "text/html; charset=utf-8", page()
        if asked == ("GET", "/api/review"):
            return told(HTTPStatus.OK, self._review.to_json())
        if asked == ("POST", "/api/answer") and (b"content-type", b"application/json") in scope["headers"]:
            try:
                given = json.loads(await _body(receive))
                self._review.answer(given["id"], Said(given["said"]))
            except (ValueError, KeyError, TypeError):
                return told(HTTPStatus.BAD_REQUEST, {"problem": "no such decision, or no such answer"})
            return told(HTTPStatus.OK, self._review.rates())
        return told(HTTPStatus.NOT_FOUND, {"problem": f"there is nothing at {scope['path']}"})


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more and len(body) <= LARGEST:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def serve_review(review: Review, port: int = 0, *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve a review until interrupted. `port` 0 is any free port; `ready` is called with the address."""
    import uvicorn

    from cleaner_rl.view.server import bind

    listening = bind(port)
    ready(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    config = uvicorn.Config(
        ReviewApplication(review), log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])
