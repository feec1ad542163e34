// Lists: filters above, a page of rows below. The address holds all of it.

import { badge, button, type Child, count, decimal, h, plural, visible } from "./dom";
import { address, go, put, trajectoryAddress } from "./route";
import { source } from "./source";
import type { Page, Parameters, Row } from "./types";

const CHOICES: [name: string, label: string, options: [value: string, label: string][]][] = [
  ["outcome", "Outcome", [["solved", "solved"], ["failed", "not solved"], ["ungraded", "not graded"]]],
  ["edits", "Edits", [["any", "any edit"], ["graft", "a graft"], ["replace", "a replacement"], ["uncorrected", "a failed call left uncorrected"], ["none", "none"]]],
  ["status", "A call's status", ["ok", "error", "timeout", "memory", "output_limit", "crashed", "malformed", "refused", "fault"].map((each) => [each, each.replace("_", " ")])],
  ["stop_reason", "Stop reason", ["answered", "turn_limit", "token_limit", "time_limit", "dropped", "fault"].map((each) => [each, each.replace("_", " ")])],
  ["kept", "Kept by RoC", [["yes", "kept"], ["no", "not kept"], ["unknown", "not said"]]],
];
const RANGES: [name: string, label: string][] = [
  ["step", "Step"], ["reward", "Reward"], ["similarity", "Similarity"], ["turns", "Turns"], ["length", "Length"], ["failed", "Failed calls"], ["logprob_gap", "Log-prob gap"],
];
const COLUMNS: [name: string, label: string, numeric: boolean][] = [
  ["task", "Task", false], ["run", "Run", false], ["step", "Step", true], ["reward", "Reward", true], ["stop_reason", "Ended", false], ["turns", "Turns", true],
  ["length", "Length", true], ["failed", "Failed calls", true], ["edits", "Edits", false], ["similarity", "Similarity", true], ["logprob_gap", "Gap", true],
];
/** What every store has: all else is hidden where the server doesn't name it among the columns of this one. */
const ALWAYS = new Set(["task", "status", "turns", "length", "failed"]);
const PATIENCE = 180;

/** The list that was looked at last, to go back to. */
export let lastList: Parameters = {};

export async function list(parameters: Parameters): Promise<HTMLElement> {
  const results = h("div", { class: "results" });
  let now = { ...parameters };
  let timer = 0;
  let asking = new AbortController();

  const load = async () => {
    lastList = now;
    asking.abort();
    asking = new AbortController();
    try {
      const page = await source.list(now, asking.signal);
      offer(runs, page.runs, now.run);
      for (const field of form.querySelectorAll<HTMLElement>("[data-shows]")) {
        const name = field.dataset.shows ?? "";
        field.hidden = !isHeld(name, page) && !now[name] && !now[`${name}_min`] && !now[`${name}_max`];
      }
      results.replaceChildren(...shown(page, now));
      // What is still being read, or looked for, comes later: as long as this list is looked at.
      if (page.searching || page.progress.left > 0) timer = window.setTimeout(() => { if (results.isConnected) void load(); }, page.searching ? 400 : 2000);
    } catch (error) {
      if ((error as Error).name !== "AbortError") results.replaceChildren(h("p", { class: "problem", role: "alert" }, (error as Error).message));
    }
  };
  const change = (name: string, value: string, wait = 0) => {
    const { page: _, ...others } = now;
    now = { ...others, [name]: value };
    if (!value) delete now[name];
    put("list", now);
    document.querySelector<HTMLElement>(".clear")?.toggleAttribute("hidden", !filtered(now));
    clearTimeout(timer);
    timer = window.setTimeout(() => void load(), wait);
  };
  const runs = h("select", { "aria-label": "Run", onchange: () => change("run", runs.value) }) as HTMLSelectElement;
  const form = filters(now, runs, change);
  const page = h("div", { class: "list" }, h("h1", { class: "hidden" }, "Trajectories"), form, results);
  await load();
  return page;
}

/** Whether this store has what a filter or a column shows. */
function isHeld(name: string, page: Page): boolean {
  if (name === "run") return page.runs.length > 1;
  return ALWAYS.has(name) || page.columns.includes(name);
}

/** The runs that there are to choose from: more of them while a store is being indexed. */
function offer(select: HTMLSelectElement, known: string[], chosen = ""): void {
  const names = chosen && !known.includes(chosen) ? [...known, chosen] : known;
  if (select.options.length === names.length + 1) return;
  select.replaceChildren(h("option", { value: "" }, "all"),
    ...names.map((name) => h("option", { value: name, selected: name === chosen }, visible(name) || "(no name)")));
}

function filters(now: Parameters, runs: HTMLElement, change: (name: string, value: string, wait?: number) => void): HTMLElement {
  const select = (name: string, label: string, options: [string, string][]) =>
    h("label", { class: "field", "data-shows": name }, h("span", {}, label),
      h("select", { "aria-label": label, onchange: (event: Event) => change(name, (event.target as HTMLSelectElement).value) },
        h("option", { value: "" }, "all"),
        options.map(([value, text]) => h("option", { value, selected: now[name] === value }, visible(text)))));
  const input = (name: string, label: string, type: string, properties = {}) =>
    h("input", { type, "aria-label": label, placeholder: label, value: now[name] ?? "", step: "any", ...properties,
      oninput: (event: Event) => change(name, (event.target as HTMLInputElement).value, PATIENCE) });
  const active = RANGES.some(([name]) => now[`${name}_min`] || now[`${name}_max`]) || Boolean(now.task);
  return h("form", { class: "filters", role: "search", onsubmit: (event: Event) => event.preventDefault() },
    h("div", { class: "line" },
      h("div", { class: "search" },
        input("q", "Search tasks, questions and answers", "search", { id: "search" }),
        h("label", { class: "check" },
          h("input", { type: "checkbox", checked: now.inside === "yes", onchange: (event: Event) => change("inside", (event.target as HTMLInputElement).checked ? "yes" : "") }),
          "inside turns too")),
      !source.exported && h("a", { class: "button", id: "export", href: "#", download: "trajectories.html", onclick: (event: Event) => {
        const { page: _, size: __, ...wanted } = lastList;
        (event.currentTarget as HTMLAnchorElement).href = `export?${new URLSearchParams(wanted)}`;
      } }, "Export")),
    h("div", { class: "line" },
      h("label", { class: "field", "data-shows": "run" }, h("span", {}, "Run"), runs),
      CHOICES.map(([name, label, options]) => select(name, label, options))),
    h("details", { open: active }, h("summary", {}, "By task and numbers"),
      h("div", { class: "line" },
        h("label", { class: "field" }, h("span", {}, "Task"), input("task", "part of its name", "text", { "aria-label": "Task" })),
        RANGES.map(([name, label]) => h("fieldset", { class: "field", "data-shows": name }, h("legend", {}, label),
          h("div", { class: "range" }, input(`${name}_min`, "from", "number", { "aria-label": `${label}, from` }), input(`${name}_max`, "to", "number", { "aria-label": `${label}, to` })))))),
    h("a", { href: address("list"), class: "clear", hidden: !filtered(now) }, "Clear filters"));
}

function filtered(now: Parameters): boolean {
  return Object.keys(now).some((name) => name !== "sort" && name !== "page");
}

function shown(page: Page, now: Parameters): HTMLElement[] {
  const first = page.page * page.size;
  const parts = [h("p", { class: "count", role: "status" },
    plural(page.total, "trajectory", "trajectories"),
    source.leftOut > 0 && h("span", { class: "muted" }, ` · ${count(source.leftOut)} more of the list are not in this file`),
    page.searching && h("span", { class: "muted" }, ` · searching, ${page.searching.done} of ${plural(page.searching.total, "file")} read`),
    page.progress.left > 0 && h("span", { class: "muted" }, ` · indexing, ${plural(page.progress.left, "file")} left`))];
  if (page.rows.length === 0) return [...parts, h("p", { class: "empty" }, page.searching ? "Nothing found yet." : "No trajectory fits these filters.")];
  const turn = (to: number, label: string, id: string) => button(label, () => go("list", { ...now, page: String(to) }), { id, disabled: to < 0 || to * page.size >= page.total });
  return [...parts, table(page, now), h("nav", { class: "pages", "aria-label": "Pages" },
    turn(page.page - 1, "← Previous", "previous"),
    h("span", { class: "muted" }, `${count(first + 1)} – ${count(first + page.rows.length)}`),
    turn(page.page + 1, "Next →", "next"))];
}

function table(page: Page, now: Parameters): HTMLElement {
  const sort = now.sort ?? "";
  const columns = COLUMNS.filter(([name]) => isHeld(name, page) || (name === "stop_reason" && page.columns.includes("outcome")));
  const head = columns.map(([name, label, numeric]) => {
    const is = sort.replace(/^-/, "") === name;
    const falling = sort.startsWith("-");
    // The first click shows what one looks for: the largest number, the first name.
    const following = is ? (falling === numeric ? (falling ? name : `-${name}`) : "") : numeric || name === "edits" ? `-${name}` : name;
    return h("th", { scope: "col", class: numeric ? "n" : "", "aria-sort": is ? (falling ? "descending" : "ascending") : "none" },
      button(label, () => go("list", { ...now, page: "", sort: following }), { class: "sort" }),
      is && h("span", { "aria-hidden": "true" }, falling ? " ↓" : " ↑"));
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of trajectories" },
    h("table", { class: "rows" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, page.rows.map((each) => row(each, columns.map(([name]) => name))))));
}

function row(each: Row, columns: string[]): HTMLElement {
  const cells: Record<string, Child> = {
    run: visible(each.run_id), step: count(each.step), reward: decimal(each.reward),
    stop_reason: [(each.success !== null || each.reward !== null) && outcome(each), each.stop_reason !== null && each.stop_reason !== "answered" && badge(each.stop_reason.replace("_", " "), "plain")],
    turns: count(each.turns), length: [count(each.length), !each.tokens && h("abbr", { class: "muted", title: "characters" }, " c")],
    failed: count(each.failed), edits: edits(each), similarity: decimal(each.similarity, 3), logprob_gap: decimal(each.logprob_gap),
  };
  return h("tr", {},
    h("th", { scope: "row" },
      h("a", { href: trajectoryAddress(each.id) }, titleOf(each), each.source === null && h("span", { class: "muted" }, ` #${each.rollout}`)),
      h("span", { class: "snippet", title: each.source === null ? undefined : visible(each.source) }, snippet(each))),
    COLUMNS.filter(([name]) => name !== "task" && columns.includes(name)).map(([name, label, numeric]) =>
      h("td", { class: numeric ? "n" : "", "data-label": label }, cells[name])));
}

/** The words of a task, or else its name. */
export function titleOf(each: { title: string; task: string }): string {
  return visible(each.title) || visible(each.task) || "(no task)";
}

/** A task's name, unless it is its title or only a hash of the prompt. */
export function nameOf(each: { title: string; task: string }): string {
  return each.task === each.title || /^prompt-[0-9a-f]{16}$/.test(each.task) ? "" : visible(each.task);
}

/** A log's file and line, without the folder. */
export function fileOf(source: string): string {
  return visible(source).split("/").at(-1) ?? "";
}

function snippet(each: Row): string {
  const text = visible(each.answer || each.prompt).replace(/<\|[^|]*\|>/g, " ").replace(/\s+/g, " ").trim();
  const name = each.source === null ? nameOf(each) : fileOf(each.source);
  return [name, text.length > 110 ? `…${text.slice(-110)}` : text].filter(Boolean).join(" · ");
}

export function outcome(each: { success: boolean | null }): HTMLElement {
  if (each.success === null) return badge("not graded", "plain");
  return each.success ? badge("solved", "good") : badge("not solved", "bad");
}

/** Where a rescue began. */
export function rescueNote(each: Row): string {
  return `It begins with the turns of rollout #${each.rescue_of}, whose turn ${each.rescue_turn} failed. Its repair changed that turn, and the model went on from there.`;
}

export function edits(each: Row): HTMLElement[] {
  const found = [];
  if (each.grafts) found.push(badge(plural(each.grafts, "graft"), "edit"));
  if (each.replacements) found.push(badge(plural(each.replacements, "replacement"), "edit"));
  if (each.rescue_of !== null) found.push(badge(`rescue of #${each.rescue_of}`, "plain", rescueNote(each)));
  if (each.uncorrected) found.push(badge(`${each.uncorrected} uncorrected`, "plain"));
  return found;
}
