// A call as a person would write it: a program, a command or a query as code, a file edit as a diff, all else as its arguments.

import { code } from "./code";
import { codeDiff, patch } from "./diff";
import { h, visible } from "./dom";
import type { Call, Turn } from "./types";

const LANGUAGES = { python: "python", shell: "bash", sql: "sql", other: "python" } as const;

export function called(call: Call): HTMLElement {
  return h("div", { class: `call ${call.kind}` },
    h("h3", {}, visible(call.name) || "call"),
    call.problem !== null && h("p", { class: "problem" }, visible(call.problem)),
    content(call));
}

function content(call: Call): (HTMLElement | null)[] {
  if (call.kind === "edit" && call.code && !call.problem) return fileEdit(call);
  if (!call.code) return [Object.keys(call.arguments).length > 0 ? code(json(call.arguments), "json") : null];
  return [code(call.code, LANGUAGES[call.kind === "edit" ? "other" : call.kind]), options(call.arguments)];
}

/** What the calls of a turn run, as text to compare. */
export function program(turn: Turn): string {
  return turn.calls.map((call) => call.code || json(call.arguments)).join("\n\n");
}

/** JSON in which the line breaks of texts are line breaks. */
function json(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/\\\\|\\n/g, (found) => (found === "\\n" ? "\n" : found));
}

/** Arguments beside the code: a working directory, a time limit. */
function options(others: Record<string, unknown>): HTMLElement | null {
  const lines = Object.entries(others);
  if (lines.length === 0) return null;
  return h("dl", { class: "options" }, lines.map(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, visible(typeof value === "string" ? value : JSON.stringify(value)))]));
}

/** The operation and the path, then the lines that go and those that come. The code has them so: see `call_code` in `kinds.py`. */
function fileEdit(call: Call): HTMLElement[] {
  if (Object.keys(call.arguments).length === 0) return [patch(call.code, "Patch")];
  const [head, ...lines] = call.code.split("\n");
  const side = (sign: string) => {
    const found = lines.filter((line) => line.startsWith(sign)).map((line) => line.slice(1));
    return found.length > 0 ? found.join("\n") : null;
  };
  const operation = typeof call.arguments.command === "string" ? call.arguments.command : "";
  const path = head.slice(operation ? operation.length + 1 : 0);
  const [old, now] = [side("-"), side("+")];
  const parts = [h("p", { class: "path" }, operation && h("span", { class: "muted" }, `${visible(operation)} `), h("code", {}, visible(path)))];
  const others: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(call.arguments)) {
    if ([operation, path, old, now].includes(value as string)) continue;
    if (typeof value === "string" && value.includes("\n")) parts.push(patch(value, `${name} of ${path}`));
    else if (isReplacements(value)) parts.push(...value.map((each) => codeDiff(...texts(each), `Change of ${path}`, false)));
    else others[name] = value;
  }
  if (old !== null || now !== null) parts.push(codeDiff(old, now, `Change of ${path}`, false));
  const rest = options(others);
  return rest === null ? parts : [...parts, rest];
}

/** Whether a value is a list of replacements, as tools have it that make several in one call. */
function isReplacements(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "object" && each !== null && texts(each).every((text) => text !== null));
}

function texts(replacement: Record<string, unknown>): [string | null, string | null] {
  const find = (start: string) => Object.entries(replacement).find(([name, value]) => name.startsWith(start) && typeof value === "string")?.[1] as string | undefined;
  return [find("old") ?? null, find("new") ?? null];
}
