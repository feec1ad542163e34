// A turn: what the model thought, what it ran, what came back; and if it was edited, how it was before.

import { code } from "./code";
import { codeDiff, proseDiff } from "./diff";
import { badge, decimal, h, long, plural, visible } from "./dom";
import type { Call, Edit, Result, Turn } from "./types";

const DECISIONS = {
  graft: "The failed call was replaced by its verified correction; the reasoning stayed.",
  replace: "The correction is unlike the failed call, so its reasoning was taken over too.",
  none: "No correction was accepted; the failed call stays.",
};
const VIEWS = [["changes", "Changes"], ["after", "After"], ["before", "Before"]] as const;
let nextName = 0;

export function turnLook(turn: Turn): { kind: string; label: string } {
  const calls = turn.calls.map((call) => call.name).filter(Boolean).join(", ");
  const what = turn.calls.length > 0 ? calls || "call" : "answer";
  if (turn.edit && turn.edit.kind !== "none") return { kind: "edit", label: `${what}, ${turn.edit.kind === "graft" ? "grafted" : "replaced"}` };
  if (turn.results.some((result) => result.blame === "infrastructure")) return { kind: "none", label: `${what}, fault` };
  if (turn.failed) return { kind: "bad", label: `${what}, failed` };
  return { kind: turn.calls.length > 0 ? "good" : "none", label: what };
}

export function turnCard(turn: Turn, index: number, link: string, tokens: HTMLElement[] | null): HTMLElement {
  const look = turnLook(turn);
  const edit = turn.edit;
  const title = h("h2", { id: `title-${index}` }, h("a", { href: link, "aria-label": `Turn ${index}, link to it` }, `Turn ${index}`));
  const card = h("section", { class: `turn card ${look.kind}`, id: `turn-${index}`, tabindex: "-1", "aria-labelledby": `title-${index}` },
    h("header", {}, title,
      edit && edit.kind !== "none" && badge(edit.kind === "graft" ? "repaired: graft" : "repaired: replacement", "edit"),
      edit && badge(edit.mode === "saar" ? "SAAR" : edit.mode, "plain"),
      turn.failed && badge("failed call", "bad"),
      h("span", { class: "muted small" }, lengthOf(turn))));
  if (tokens !== null) card.append(...tokens);
  else if (edit && edit.kind !== "none" && edit.original.length > 0) card.append(edited(turn, edit, index));
  else card.append(...content(turn));
  if (edit && tokens === null) card.append(...sampled(edit));
  return card;
}

function lengthOf(turn: Turn): string {
  return turn.results.map((result) => (result.seconds === null ? "" : `${decimal(result.seconds, 2)} s`)).filter(Boolean).join(", ");
}

/** Reasoning, calls and results, as they stand. */
function content(turn: Turn): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (turn.reasoning.text.trim()) parts.push(h("div", { class: "reasoning" }, long(turn.reasoning.text.trim(), "prose")));
  turn.calls.forEach((call, place) => parts.push(called(call), ...(turn.results[place] ? [came(turn.results[place])] : [])));
  const raw = [turn.action, turn.observation].filter((each) => each !== null);
  if (raw.length > 0) {
    parts.push(h("details", { class: "raw" }, h("summary", {}, "As the model wrote and saw it"),
      raw.map((each) => long(each.text, "code")), raw.some((each) => each.cut > 0) && h("p", { class: "note" }, "The rest is not shown here; read it from the store.")));
  }
  return parts;
}

function called(call: Call): HTMLElement {
  const others = Object.keys(call.arguments).length > 0;
  return h("div", { class: "call" },
    h("h3", {}, visible(call.name) || "call"),
    call.problem !== null && h("p", { class: "problem" }, visible(call.problem)),
    call.code && code(call.code, call.is_program || !others ? "python" : "json"),
    others && call.is_program && code(JSON.stringify(call.arguments, null, 2), "json"));
}

function came(result: Result): HTMLElement {
  const kind = { nobody: "good", model: "bad", infrastructure: "plain" }[result.blame];
  const error = result.exception;
  return h("div", { class: `result ${kind}` },
    h("h3", {}, "result ", badge(result.status.replace("_", " "), kind)),
    result.output && long(result.output, "output"),
    result.output_length !== null && h("p", { class: "note" }, `Cut: the program printed ${plural(result.output_length, "character")}.`),
    result.stderr && h("div", {}, h("h4", {}, "stderr"), long(result.stderr, "output")),
    error && h("div", { class: "exception" }, h("p", {}, h("strong", {}, visible(error.type)), error.message && `: ${visible(error.message).slice(0, 2000)}`, error.line !== null && h("span", { class: "muted" }, ` (line ${error.line})`)),
      error.traceback && h("details", {}, h("summary", {}, "Traceback"), long(error.traceback, "output"))),
    result.explanation && h("p", {}, visible(result.explanation)),
    !result.output && !result.stderr && !error && !result.explanation && h("p", { class: "muted small" }, "Nothing was printed."));
}

/** An edited turn in three views: what changed, as it stands, as it was. */
function edited(turn: Turn, edit: Edit, index: number): HTMLElement {
  const before = edit.original[0];
  const body = h("div", { class: "view" });
  const show = (view: string) => {
    if (view === "after") body.replaceChildren(...content(turn));
    else if (view === "before") body.replaceChildren(...content(before));
    else body.replaceChildren(...changes(before, turn, edit));
  };
  const name = `view-${nextName++}`;
  show("changes");
  return h("div", { class: "edited" },
    h("div", { class: "decision" },
      h("p", {}, DECISIONS[edit.kind]),
      h("dl", { class: "inline" },
        h("dt", {}, "Similarity"), h("dd", {}, decimal(edit.similarity, 3), edit.measure && h("span", { class: "muted" }, ` ${visible(edit.measure)}`)),
        h("dt", {}, "Log-prob gap"), h("dd", {}, edit.logprob_gap === null ? "not known" : `${decimal(edit.logprob_gap, 3)} nats per token`),
        edit.stale.length > 0 && [h("dt", {}, "Still mentions"), h("dd", {}, visible(edit.stale.join(", ")))])),
    h("fieldset", { class: "segmented" }, h("legend", { class: "hidden" }, `Turn ${index}: what to show`),
      VIEWS.map(([view, label]) => h("label", {}, h("input", { type: "radio", name, value: view, checked: view === "changes", onchange: () => show(view) }), h("span", {}, label)))),
    body);
}

function changes(before: Turn, after: Turn, edit: Edit): HTMLElement[] {
  const parts: HTMLElement[] = [];
  const [thought, now] = [before.reasoning.text.trim(), after.reasoning.text.trim()];
  if (thought || now) parts.push(h("div", { class: "reasoning" }, edit.kind === "replace" ? proseDiff(thought, now) : long(now, "prose")));
  parts.push(h("div", { class: "call" }, h("h3", {}, visible(after.calls[0]?.name || "call")), codeDiff(program(before), program(after), "Program, before and after")));
  parts.push(h("div", { class: "fates" },
    h("div", {}, h("h4", {}, "Before"), before.results.map(came)),
    h("div", {}, h("h4", {}, "After"), after.results.map(came))));
  return parts;
}

function program(turn: Turn): string {
  return turn.calls.map((call) => call.code).join("\n\n");
}

/** What an edit stands for, folded. */
function sampled(edit: Edit): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (edit.kind === "none") parts.push(h("p", { class: "note" }, DECISIONS.none, edit.refusal && ` Why: ${visible(edit.refusal)}.`));
  if (edit.original.length > 0) {
    const failed = edit.original.filter((each) => each.failed).length;
    parts.push(h("details", { class: "ledger" },
      h("summary", {}, `What the model sampled here: ${plural(edit.original.length, "turn")}, ${failed} failed`),
      h("ol", {}, edit.original.map((each) => h("li", {},
        h("p", { class: "badges" }, h("strong", {}, each.attempt > 0 ? `Attempt ${each.attempt}` : "In the rollout"), each.failed ? badge("failed", "bad") : badge("worked", "good")),
        content(each), each.edit && sampled(each.edit))))));
  }
  return parts;
}
