// What the server sends: see `cleaner_rl/view/library.py` and `detail.py`.

export interface Curve { steps: number[]; values: number[] }
export interface Run {
  id: string; trajectories: number; steps: number; tasks: number;
  curves: Record<string, Curve>; logged: string[];
}
export interface Progress { files: number; left: number; trajectories: number }
export interface Figure { set: string; repair: string; figure: string; value: number | null; low: number | null; high: number | null; problems: number }
export interface Evaluation { file: string; model: string; settings: Record<string, unknown>; figures: Figure[] }
export interface Overview {
  path: string; progress: Progress; runs: Run[]; evaluations: Evaluation[];
  problems: { name: string; problem: string }[];
}

export interface Verdict { kept?: boolean; why?: string; penalty?: number | null; advantage?: number | null; views?: string[] }
export interface Row {
  id: string; run_id: string; run: string; phase: string; step: number; task: string; rollout: number;
  reward: number | null; success: boolean | null; stop_reason: string | null;
  turns: number; length: number; tokens: boolean; calls: number; failed: number;
  grafts: number; replacements: number; uncorrected: number;
  similarity: number | null; logprob_gap: number | null; kept: boolean | null;
  /** The rollout that it rescued, and the failed turn of that one; null if it is no rescue. */
  rescue_of: number | null; rescue_turn: number | null;
  statuses: string[]; title: string; source: string | null; prompt: string; answer: string; verdict?: Verdict | null;
}
export interface Page {
  total: number; page: number; size: number; rows: Row[]; runs: string[];
  /** Of the columns that not every store has, those that this one has. */
  columns: string[];
  searching: { done: number; total: number } | null; progress: Progress;
}

export interface Text { text: string; cut: number }
export interface Call {
  name: string; kind: "python" | "shell" | "edit" | "sql" | "other"; problem: string | null;
  /** What it runs; empty if it has nothing but its arguments. */
  code: string;
  /** All but those that are the code. */
  arguments: Record<string, unknown>;
}
export interface Result {
  status: string; blame: "nobody" | "model" | "infrastructure"; output: string; stderr: string;
  exception: { type: string; message: string; line: number | null; traceback: string } | null;
  explanation: string; output_length: number | null; seconds: number | null;
}
export interface Edit {
  mode: "saar" | "hindsight"; kind: "graft" | "replace" | "none";
  similarity: number | null; measure: string; refusal: string; stale: string[]; verified: string | null; logprob_gap: number | null; original: Turn[];
}
export interface Turn {
  reasoning: Text; action: Text | null; observation: Text | null; calls: Call[]; results: Result[];
  attempt: number; failed: boolean; length: number; edit: Edit | null; moved?: string[];
  /** Why a failed turn of a log was not repaired; null if nobody says. */
  left_alone?: string | null;
}
export interface LogSource { format: string | null; file: string | null; line: number | null; id: string | null }
/** A right rollout as it was sampled: its failed turns are in the context, and not in the loss. */
export interface Recovery { turns: Turn[]; length: number; in_loss: number }
export interface Trajectory {
  id: string; run_id: string; key: { run: string; phase: string; step: number; task: string; rollout: number };
  title: string; source: LogSource | null;
  reward: number | null; success: boolean | null; stop_reason: string | null; info: Record<string, unknown>;
  length: number; unit: string; prompt: Text; turns: Turn[]; in_loss: number; recovery: Recovery | null; rollouts: number; siblings: Row[];
}

export interface TokenSpan {
  owner: "prompt" | "reasoning" | "action" | "observation"; turn: number; learnt: boolean; moved: boolean;
  texts: string[] | null; ids: number[]; logprobs: (number | null)[] | null; sampled: (number | null)[] | null;
  version: number | null;
}
export interface Tokens { spans: TokenSpan[] | null; recovery: TokenSpan[] | null }
export type Parameters = Record<string, string>;
