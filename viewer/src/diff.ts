// Two texts side by side: lines that went, lines that came, and in lines that changed the words that did.

import { diffLines, diffWordsWithSpace } from "diff";
import { button, h, plural, visible } from "./dom";

interface Line { text: string; kind: "same" | "gone" | "new"; pair?: string; before?: number; after?: number }

const LIMIT = 200_000;
const FOLDED = 40;
const OPTIONS = { timeout: 1000 };

/** Lines before and after, each with its mark; null if comparing them takes too long. */
function lines(before: string, after: string): Line[] | null {
  if (before.length + after.length > LIMIT) return null;
  const changes = diffLines(`${before.trimEnd()}\n`, `${after.trimEnd()}\n`, OPTIONS);
  if (!changes) return null;
  const found: Line[] = [];
  let [old, now] = [1, 1];
  for (let i = 0; i < changes.length; i++) {
    const texts = split(changes[i].value);
    if (!changes[i].removed && !changes[i].added) {
      for (const text of texts) found.push({ text, kind: "same", before: old++, after: now++ });
    } else if (changes[i].removed && changes[i + 1]?.added) {
      const news = split(changes[i + 1].value);
      texts.forEach((text, place) => found.push({ text, kind: "gone", pair: news[place], before: old++ }));
      news.forEach((text, place) => found.push({ text, kind: "new", pair: texts[place], after: now++ }));
      i++;
    } else {
      for (const text of texts) found.push(changes[i].removed ? { text, kind: "gone", before: old++ } : { text, kind: "new", after: now++ });
    }
  }
  return found;
}

function split(text: string): string[] {
  return text.replace(/\n$/, "").split("\n");
}

/** Code before and after: a table of lines. One of them may not be there: then all lines are gone, or new. */
export function codeDiff(before: string | null, after: string | null, label: string, numbered = true): HTMLElement {
  if (before === null || after === null) {
    const [text, kind] = before === null ? [after ?? "", "new" as const] : [before, "gone" as const];
    return table(split(visible(text)).map((line) => ({ text: line, kind })), label, numbered);
  }
  const found = lines(visible(before), visible(after));
  if (found === null) return h("p", { class: "note" }, "Too long to compare; see before and after by themselves.");
  return table(found, label, numbered);
}

/** A text whose lines begin with their signs, as in a patch. */
export function patch(text: string, label: string): HTMLElement {
  const kinds: Record<string, Line["kind"]> = { "-": "gone", "+": "new" };
  return table(split(visible(text)).map((line) => {
    const kind = kinds[line[0]] ?? "same";
    return { text: kind === "same" ? line : line.slice(1), kind };
  }), label, false);
}

function table(found: Line[], label: string, numbered: boolean): HTMLElement {
  const row = (line: Line) =>
    h("tr", { class: line.kind },
      numbered && h("td", { class: "number" }, line.before ?? ""),
      numbered && h("td", { class: "number" }, line.after ?? ""),
      h("td", { class: "sign" }, line.kind === "same" ? "" : h("span", { "aria-label": line.kind === "gone" ? "removed" : "added", role: "img" }, line.kind === "gone" ? "−" : "+")),
      h("td", { class: "line" }, words(line)));
  // A file that is written whole is long and has nothing to compare.
  const end = found.length > FOLDED * 1.5 && found.every((line) => line.kind === found[0].kind) ? FOLDED : found.length;
  const body = h("tbody", {}, found.slice(0, end).map(row));
  const box = h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, body));
  if (end < found.length) {
    const more = button(`Show ${plural(found.length - end, "more line")}`, () => { more.remove(); body.append(...found.slice(end).map(row)); }, { class: "more" });
    box.append(more);
  }
  return box;
}

function words(line: Line): (Node | string)[] {
  if (line.kind === "same" || line.pair === undefined || line.text.length + line.pair.length > 4000) return [line.text];
  const [before, after] = line.kind === "gone" ? [line.text, line.pair] : [line.pair, line.text];
  const changes = diffWordsWithSpace(before, after);
  const kept = changes.reduce((sum, each) => sum + (each.added || each.removed ? 0 : each.value.trim().length), 0);
  // Lines that share hardly a word are not the same line changed.
  if (kept * 4 < Math.max(1, Math.min(before.length, after.length))) return [line.text];
  return changes
    .filter((each) => (line.kind === "gone" ? !each.added : !each.removed))
    .map((each) => (each.added || each.removed ? h(line.kind === "gone" ? "del" : "ins", {}, each.value) : each.value));
}

/** Prose before and after, in one flow of words. */
export function proseDiff(before: string, after: string): HTMLElement {
  const [old, now] = [visible(before), visible(after)];
  const changes = old.length + now.length > LIMIT / 10 ? undefined : diffWordsWithSpace(old, now, OPTIONS);
  if (!changes) return h("p", { class: "note" }, "Too long to compare; see before and after by themselves.");
  const kept = changes.filter((each) => !each.added && !each.removed).reduce((sum, each) => sum + each.value.trim().length, 0);
  if (kept * 3 < Math.min(old.length, now.length)) {
    return h("div", { class: "text prose" }, h("del", {}, old.trim()), "\n", h("ins", {}, now.trim()));
  }
  return h("div", { class: "text prose" }, changes.map((each) => (each.added ? h("ins", {}, each.value) : each.removed ? h("del", {}, each.value) : each.value)));
}
