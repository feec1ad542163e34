// The keyboard: everything that the pointer can do, and a page that says how.

import { button, h } from "./dom";
import { current, go } from "./route";

const KEYS: [string, string][] = [
  ["?", "these keys"], ["o", "overview"], ["l", "trajectories"], ["/", "search"], ["d", "light or dark"],
  ["j k", "next and previous row, or turn"], ["Enter", "open the row"], ["n p", "next and previous page of a list, or rollout of the group"],
  ["e", "next edit, in this trajectory or in the next one of the list"], ["t", "tokens: text, loss mask, log-probs, gap"], ["u", "back to the list"], ["Esc", "close, or leave a field"],
];

export function help(): void {
  const dialog = h("dialog", { class: "keys", "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", {}, KEYS.map(([keys, what]) => [h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, what)])),
    button("Close", () => dialog.close())) as HTMLDialogElement;
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function click(selector: string): void {
  const element = document.querySelector<HTMLElement>(selector);
  if (element && !(element as HTMLButtonElement).disabled) element.click();
}

/** The next or previous of some elements, seen from the one that has the focus. */
function step(selector: string, by: number): void {
  const all = [...document.querySelectorAll<HTMLElement>(selector)];
  const from = document.activeElement ?? document.body;
  const side = by > 0 ? Node.DOCUMENT_POSITION_FOLLOWING : Node.DOCUMENT_POSITION_PRECEDING;
  const others = all.filter((each) => !each.contains(from) && from.compareDocumentPosition(each) & side);
  const next = from === document.body ? all[0] : by > 0 ? others[0] : others.at(-1);
  if (!next) return;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: selector.includes("turn") ? "start" : "nearest" });
  const turn = /^turn-(\d+)$/.exec(next.id);
  if (turn) next.dispatchEvent(new CustomEvent("turn", { detail: Number(turn[1]), bubbles: true }));
}

export function keys(toggleTheme: () => void): void {
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input:not([type=radio]):not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const { page } = current();
    const things = page === "trajectory" ? "section.turn" : "table.rows tbody th a";
    const actions: Record<string, () => void> = {
      "?": help, o: () => go(""), l: () => go("list"), d: toggleTheme,
      "/": () => (page === "list" ? document.getElementById("search")?.focus() : go("list")),
      j: () => step(things, 1), k: () => step(things, -1), n: () => click("#next"), p: () => click("#previous"),
      e: () => document.querySelector(".trajectory")?.dispatchEvent(new Event("next-edit")), u: () => click("#back"),
      t: () => document.querySelector(".trajectory")?.dispatchEvent(new Event("colouring")),
    };
    const action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  });
}
