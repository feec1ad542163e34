// Where the data comes from: the server, or the file itself if it was exported.

import type { Overview, Page, Parameters, Row, Tokens, Trajectory, Turn } from "./types";

export interface Source {
  readonly exported: boolean;
  /** How many trajectories of its list an exported file doesn't hold. */
  readonly leftOut: number;
  overview(): Promise<Overview>;
  list(parameters: Parameters, signal?: AbortSignal): Promise<Page>;
  trajectory(id: string): Promise<Trajectory>;
  tokens(id: string): Promise<Tokens>;
  /** The next trajectory of a list, after one, that has an edit; null after the last. */
  nextEdit(id: string, parameters: Parameters): Promise<string | null>;
  /** The trajectory whose first edit is shown at the start; null to start with the overview. */
  opening(): Promise<string | null>;
}

class Server implements Source {
  readonly exported = false;
  readonly leftOut = 0;
  overview(): Promise<Overview> { return this.ask("api/overview", {}); }
  list(parameters: Parameters, signal?: AbortSignal): Promise<Page> { return this.ask("api/list", parameters, signal); }
  trajectory(id: string): Promise<Trajectory> { return this.ask("api/trajectory", { id }); }
  tokens(id: string): Promise<Tokens> { return this.ask("api/tokens", { id }); }
  async nextEdit(id: string, parameters: Parameters): Promise<string | null> {
    return (await this.ask<{ id: string | null }>("api/next-edit", { ...parameters, id })).id;
  }
  async opening(): Promise<string | null> {
    const { columns, rows } = await this.list({ edits: "any", size: "1" });
    // Logs have no curves that an overview could draw.
    return columns.includes("source") && !columns.includes("step") ? rows[0]?.id ?? null : null;
  }

  private async ask<T>(path: string, parameters: Parameters, signal?: AbortSignal): Promise<T> {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.problem);
    return value as T;
  }
}

interface Exported {
  overview: Overview; total: number; rows: Row[];
  trajectories: Record<string, Trajectory>; tokens: Record<string, Tokens>;
}

class Embedded implements Source {
  readonly exported = true;
  readonly leftOut: number;
  constructor(private readonly data: Exported) {
    this.leftOut = data.total - data.rows.length;
  }
  async overview(): Promise<Overview> { return this.data.overview; }
  async trajectory(id: string): Promise<Trajectory> { return this.data.trajectories[id] ?? missing(id); }
  async tokens(id: string): Promise<Tokens> { return this.data.tokens[id] ?? missing(id); }
  async opening(): Promise<string | null> { return this.data.rows.find(isEdited)?.id ?? null; }
  async nextEdit(id: string, parameters: Parameters): Promise<string | null> {
    const rows = this.listed(parameters, id);
    return rows.slice(rows.findIndex((row) => row.id === id) + 1).find(isEdited)?.id ?? null;
  }
  async list(parameters: Parameters): Promise<Page> {
    const rows = this.listed(parameters);
    const page = Number(parameters.page ?? 0);
    const size = Number(parameters.size ?? 50);
    return {
      total: rows.length, page, size, rows: rows.slice(page * size, (page + 1) * size), searching: null,
      runs: [...new Set(this.data.rows.map((row) => row.run_id))].sort(), progress: this.data.overview.progress,
      columns: Object.keys(HELD).filter((name) => this.data.rows.some(HELD[name])),
    };
  }

  /** Rows that fit, in order, and in any case the one with this id. */
  private listed(parameters: Parameters, id?: string): Row[] {
    return sorted(this.data.rows.filter((row) => row.id === id || this.fits(row, parameters)), parameters.sort ?? "");
  }

  /** The filters of `query.py`, for the few rows of an exported file. */
  private fits(row: Row, wanted: Parameters): boolean {
    const has = (text: string, part: string) => text.toLowerCase().includes(part.toLowerCase());
    const edits = row.grafts + row.replacements;
    const chosen: Record<string, boolean> = {
      any: edits > 0, graft: row.grafts > 0, replace: row.replacements > 0, uncorrected: row.uncorrected > 0,
      none: edits + row.uncorrected === 0,
    };
    for (const [name, value] of Object.entries(wanted)) {
      if (!value) continue;
      const [, column, bound] = /^(.*)_(min|max)$/.exec(name) ?? [];
      const number = column ? (row as unknown as Record<string, number | null>)[column] : undefined;
      if (bound && (number === null || number === undefined || (bound === "min" ? number < +value : number > +value))) return false;
      if (name === "run" && row.run_id !== value) return false;
      if (name === "phase" && row.phase !== value) return false;
      if (name === "task" && !has(row.task, value)) return false;
      if (name === "group" && row.task !== value) return false;
      if (name === "edits" && !chosen[value]) return false;
      if (name === "stop_reason" && row.stop_reason !== value) return false;
      if (name === "status" && !row.statuses.includes(value)) return false;
      if (name === "outcome" && ({ solved: true, failed: false, ungraded: null } as Record<string, unknown>)[value] !== row.success) return false;
      if (name === "kept" && ({ yes: true, no: false, unknown: null } as Record<string, unknown>)[value] !== row.kept) return false;
      if (name === "q") {
        const inside = wanted.inside === "yes" ? texts(this.data.trajectories[row.id]) : [];
        if (![row.task, row.title, row.source ?? "", row.run_id, row.prompt, row.answer, ...inside].some((text) => has(text, value))) return false;
      }
    }
    return true;
  }
}

/** Which rows have what not every store has: as `HELD` in `query.py`. */
const HELD: Record<string, (row: Row) => boolean> = {
  step: (row) => row.step > 0, reward: (row) => row.reward !== null, outcome: (row) => row.success !== null,
  stop_reason: (row) => row.stop_reason !== null, edits: (row) => isEdited(row) || row.uncorrected > 0,
  similarity: (row) => row.similarity !== null, logprob_gap: (row) => row.logprob_gap !== null, kept: (row) => row.kept !== null,
  source: (row) => row.source !== null,
};

function isEdited(row: Row): boolean {
  return row.grafts + row.replacements > 0;
}

/** What `search.py` looks at: the prompt, the turns, and those that an edit took away. */
function texts(trajectory: Trajectory): string[] {
  return [trajectory.prompt.text, ...trajectory.turns.flatMap(spoken)];
}

function spoken(turn: Turn): string[] {
  const own = [turn.reasoning, turn.action, turn.observation].flatMap((each) => each?.text ?? []);
  return [...own, ...(turn.edit?.original ?? []).flatMap(spoken)];
}

function sorted(rows: Row[], sort: string): Row[] {
  if (!sort) return rows;
  const name = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const value = (row: Row) =>
    name === "edits" ? row.grafts + row.replacements : name === "run" ? row.run_id : name === "task" ? row.title || row.task : (row as unknown as Record<string, number | string | null>)[name];
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return sign * (x < y ? -1 : 1);
  });
}

function missing(id: string): never {
  throw new Error(`${id} is not in this file.`);
}

const data = document.getElementById("data");
export const source: Source = data === null ? new Server() : new Embedded(JSON.parse(data.textContent ?? "") as Exported);
