// Token by token: which are learnt from, how likely each was, and what moving cost it.

import { button, count, decimal, h, visible } from "./dom";
import type { TokenSpan } from "./types";

export type Colouring = "off" | "mask" | "logprobs" | "gap";

const AT_ONCE = 3000;
const DEEPEST = 6;

export function tokenSpan(span: TokenSpan, colouring: Colouring): HTMLElement {
  const box = h("div", { class: `text tokens ${span.owner} ${colouring}` });
  const show = (start: number) => {
    const end = Math.min(start + AT_ONCE, span.ids.length);
    for (let place = start; place < end; place++) box.append(token(span, place, colouring));
    if (end < span.ids.length) {
      const more = button(`Show ${count(Math.min(AT_ONCE, span.ids.length - end))} more tokens`, () => { more.remove(); show(end); }, { class: "more" });
      box.append(more);
    }
  };
  show(0);
  return h("section", { class: "span" }, h("h4", {}, span.owner, h("span", { class: "muted" }, ` ${summary(span)}`)), box);
}

function token(span: TokenSpan, place: number, colouring: Colouring): HTMLElement {
  const text = span.texts?.[place];
  const [logprob, sampled] = [span.logprobs?.[place], span.sampled?.[place]];
  const lost = logprob != null && sampled != null ? sampled - logprob : null;
  const parts = [`id ${span.ids[place]}`, span.learnt ? "in the loss" : "not in the loss"];
  if (logprob != null) parts.push(`log-prob ${decimal(logprob, 3)} (p ${decimal(Math.exp(logprob), 3)})`);
  if (span.moved) parts.push(sampled == null ? "moved by an edit" : `moved by an edit: sampled at ${decimal(sampled, 3)}`);
  const element = h("span", { class: `token ${span.moved ? "moved" : ""}`, title: parts.join(" · ") }, text === undefined ? `${span.ids[place]} ` : visible(text));
  if (colouring === "mask" && span.learnt) element.classList.add("learnt");
  if (colouring === "logprobs" && span.learnt) {
    if (logprob == null) element.classList.add("unknown");
    else element.style.setProperty("--heat", String(1 - Math.exp(Math.min(0, logprob))));
  }
  if (colouring === "gap" && lost !== null) {
    element.classList.add(lost >= 0 ? "lost" : "won");
    element.style.setProperty("--heat", String(Math.min(1, Math.abs(lost) / DEEPEST)));
  }
  return element;
}

function summary(span: TokenSpan): string {
  const known = span.learnt ? (span.logprobs ?? []).filter((each) => each !== null) : [];
  const parts = [`${count(span.ids.length)} ${span.ids.length === 1 ? "token" : "tokens"}`];
  if (span.learnt && known.length > 0) {
    const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
    parts.push(`mean log-prob ${decimal(mean, 3)}`, `least ${decimal(known.reduce((least, each) => Math.min(least, each)), 2)}`);
  } else if (span.learnt && span.moved) parts.push("moved, not re-scored");
  if (span.version !== null) parts.push(`weights ${span.version}`);
  return parts.join(" · ");
}

export const COLOURINGS: [Colouring, string, string][] = [
  ["off", "Text", ""],
  ["mask", "Loss mask", "Tinted tokens are in the loss; underlined ones were moved by an edit."],
  ["logprobs", "Log-probs", "The stronger the colour, the less likely the token in the context in which it stands. Struck: not known."],
  ["gap", "Gap", "Only moved tokens: orange lost log-prob by moving, blue gained."],
];
