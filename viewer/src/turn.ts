// A turn: what the model thought, what it ran, what came back; and if it was edited, how it was before.

import { called, program } from "./call";
import { codeDiff, proseDiff } from "./diff";
import { badge, button, decimal, h, long, plural, visible } from "./dom";
import type { Edit, Result, Trajectory, Turn } from "./types";

const DECISIONS = {
  graft: "The model's own correction replaced the failed call; the reasoning stayed.",
  replace: "The correction is unlike the failed call, so its reasoning was taken over too.",
  none: "No correction was accepted; the failed call stays.",
};
/** Why an edit is not verified, by the verdict of a replay. */
const UNVERIFIED: Record<string, string> = {
  "": "the correction worked later on, and was not replayed in this place.",
  nondeterministic: "two replays gave different results.",
  not_replayable: "the calls can't be replayed.",
  different: "a replay gave other results.",
};
const VIEWS = [["changes", "Changes"], ["after", "After"], ["before", "Before"]] as const;
let nextName = 0;

export function turnLook(turn: Turn): { kind: string; label: string } {
  const calls = turn.calls.map((call) => call.name).filter(Boolean).join(", ");
  const what = turn.calls.length > 0 ? calls || "call" : "answer";
  if (isRepaired(turn)) return { kind: "edit", label: `${what}, ${turn.edit?.kind === "graft" ? "grafted" : "replaced"}` };
  if (turn.results.some((result) => result.blame === "infrastructure")) return { kind: "none", label: `${what}, fault` };
  if (turn.failed) return { kind: "bad", label: `${what}, failed` };
  if (isUnsure(turn)) return { kind: "none", label: `${what}, unsure` };
  return { kind: turn.calls.length > 0 ? "good" : "none", label: what };
}

export function isRepaired(turn: Turn): boolean {
  return turn.edit !== null && turn.edit.kind !== "none";
}

/** Whether nobody can tell how its calls ended: a log has their output, and no result. */
function isUnsure(turn: Turn): boolean {
  return turn.calls.length > 0 && turn.results.length === 0 && turn.observation !== null;
}

export interface Card {
  found: Trajectory; turn: Turn; index: number; link: string;
  /** Its tokens, to be shown in place of its text. */
  tokens: HTMLElement[] | null;
  /** Whether a failed turn is in the context only. */
  isRecovery: boolean;
  /** Goes on to the edit after this turn. */
  nextEdit: () => void;
}

export function turnCard({ found, turn, index, link, tokens, isRecovery, nextEdit }: Card): HTMLElement {
  const look = turnLook(turn);
  const edit = turn.edit;
  const title = h("h2", { id: `title-${index}` }, h("a", { href: link, "aria-label": `Turn ${index}, link to it` }, `Turn ${index}`));
  const card = h("section", { class: `turn card ${look.kind}`, id: `turn-${index}`, tabindex: "-1", "aria-labelledby": `title-${index}` },
    h("header", {}, title,
      edit && isRepaired(turn) && badge(edit.kind === "graft" ? "repaired: graft" : "repaired: replacement", "edit"),
      edit && badge(edit.mode === "saar" ? "SAAR" : edit.mode, "plain"),
      edit?.verified && badge("verified", "good", edit.verified),
      turn.failed && badge("failed call", "bad"),
      turn.failed && isRecovery && badge("not in the loss", "plain", "The model sees this turn, and doesn't learn to write it."),
      isUnsure(turn) && badge("unsure", "plain", "Nobody can tell whether its calls worked."),
      h("span", { class: "muted small" }, lengthOf(turn)),
      isRepaired(turn) && button("Next edit", nextEdit, { class: "next-edit", title: "Next edit (e)" })));
  if (tokens !== null) card.append(...tokens);
  else if (edit && isRepaired(turn) && edit.original.length > 0) card.append(edited(turn, edit, index, String(found.info.replay ?? "")));
  else card.append(...content(turn));
  if (turn.left_alone && tokens === null) card.append(h("p", { class: "note left-alone" }, `Not repaired: ${visible(turn.left_alone)}.`));
  if (edit && tokens === null) card.append(...sampled(edit, found.source !== null));
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
  if (isUnsure(turn)) {
    parts.push(h("div", { class: "result plain" }, h("h3", {}, "result ", badge("unsure", "plain")),
      h("p", { class: "muted small" }, "The log doesn't say whether this worked, so the turn is never edited."), long((turn.observation?.text ?? "").trim().replace(/^<tool_response>\n?|\n?<\/tool_response>$/g, ""), "output")));
  }
  const raw = [turn.action, turn.observation].filter((each) => each !== null);
  if (raw.length > 0) {
    parts.push(h("details", { class: "raw" }, h("summary", {}, "As the model wrote and saw it"),
      raw.map((each) => long(each.text, "code")), raw.some((each) => each.cut > 0) && h("p", { class: "note" }, "The rest is not shown here; read it from the store.")));
  }
  return parts;
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
function edited(turn: Turn, edit: Edit, index: number, replay: string): HTMLElement {
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
      h("p", {}, DECISIONS[edit.kind], " ", edit.verified ? `Verified: ${lowered(edit.verified)}` : `Not verified: ${UNVERIFIED[replay] ?? UNVERIFIED[""]}`),
      h("dl", { class: "inline" },
        h("dt", {}, "Similarity"), h("dd", {}, decimal(edit.similarity, 3), edit.measure && h("span", { class: "muted" }, ` ${visible(edit.measure)}`)),
        edit.logprob_gap !== null && [h("dt", {}, "Log-prob gap"), h("dd", {}, `${decimal(edit.logprob_gap, 3)} nats per token`)],
        edit.stale.length > 0 && [h("dt", {}, "Still mentions"), h("dd", {}, visible(edit.stale.join(", ")))])),
    h("fieldset", { class: "segmented" }, h("legend", { class: "hidden" }, `Turn ${index}: what to show`),
      VIEWS.map(([view, label]) => h("label", {}, h("input", { type: "radio", name, value: view, checked: view === "changes", onchange: () => show(view) }), h("span", {}, label)))),
    body);
}

function changes(before: Turn, after: Turn, edit: Edit): HTMLElement[] {
  const parts: HTMLElement[] = [];
  const [thought, now] = [before.reasoning.text.trim(), after.reasoning.text.trim()];
  if (thought || now) parts.push(h("div", { class: "reasoning" }, edit.kind === "replace" ? proseDiff(thought, now) : long(now, "prose")));
  // A file edit is a diff itself, and one of two diffs is hard to read.
  const areDiffs = [before, after].some((turn) => turn.calls.some((call) => call.kind === "edit"));
  if (!areDiffs) parts.push(h("div", { class: "call" }, h("h3", {}, visible(after.calls[0]?.name || "call")), codeDiff(program(before), program(after), "Program, before and after")));
  const fate = (label: string, turn: Turn) => h("div", {}, h("h4", {}, label), areDiffs && turn.calls.map(called), turn.results.map(came));
  parts.push(h("div", { class: "fates" }, fate("Before", before), fate("After", after)));
  return parts;
}

function lowered(sentence: string): string {
  return sentence.charAt(0).toLowerCase() + sentence.slice(1);
}

/** What an edit stands for, folded. */
function sampled(edit: Edit, isLog: boolean): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (edit.kind === "none") parts.push(h("p", { class: "note" }, DECISIONS.none, edit.refusal && ` Why: ${visible(edit.refusal)}.`));
  if (edit.original.length > 0) {
    const failed = edit.original.filter((each) => each.failed).length;
    parts.push(h("details", { class: "ledger" },
      h("summary", {}, `${isLog ? "What the log has here" : "What the model sampled here"}: ${plural(edit.original.length, "turn")}, ${failed} failed`),
      h("ol", {}, edit.original.map((each) => h("li", {},
        h("p", { class: "badges" }, h("strong", {}, each.attempt > 0 ? `Attempt ${each.attempt}` : isLog ? "In the log" : "In the rollout"), each.failed ? badge("failed", "bad") : badge("worked", "good")),
        content(each), each.edit && sampled(each.edit, isLog))))));
  }
  return parts;
}
