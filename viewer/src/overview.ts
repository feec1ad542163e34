// The first page: runs, their curves over training steps laid over each other, evaluations.

import { figure, swatch, type Line } from "./chart";
import { count, decimal, h, plural, visible } from "./dom";
import { address, go } from "./route";
import { source } from "./source";
import type { Evaluation, Overview, Parameters, Run } from "./types";

interface Panel { title: string; note: string; curves: [name: string, label: string][] }

const PANELS: Panel[] = [
  { title: "Reward", note: "mean of a step's rollouts", curves: [["reward", ""]] },
  { title: "Accuracy", note: "share of rollouts that solved their task", curves: [["accuracy", ""]] },
  { title: "Failed calls per trajectory", note: "left in the final history", curves: [["errors_per_trajectory", ""]] },
  { title: "First-attempt success", note: "share of calls that worked unaided", curves: [["first_attempt_success", ""]] },
  { title: "Repaired", note: "share of failed calls that were repaired", curves: [["repaired", ""]] },
  { title: "Grafts and replacements", note: "per trajectory; replacements dashed", curves: [["grafts", "grafts"], ["replacements", "replacements"]] },
  { title: "Log-prob gap of edits", note: "nats per token lost by moving", curves: [["logprob_gap", ""]] },
  { title: "Tokens", note: "mean length of a trajectory", curves: [["tokens", ""]] },
  { title: "Zero-variance groups", note: "share of groups without a gradient", curves: [["zero_variance_share", ""]] },
  { title: "First-call signal", note: "reinforcement of working first calls", curves: [["first_call_signal", ""]] },
  { title: "Rescues", note: "groups that got a right rollout; tries dashed", curves: [["rescues", "rescues"], ["rescue_tries", "tries"]] },
  { title: "Rescue tokens", note: "sampled by all rescues of a step", curves: [["rescue_tokens", ""]] },
];
const KNOWN = new Set(PANELS.flatMap((panel) => panel.curves.map(([name]) => name)));
const OVERLAID = 2;
const NONE = "\n"; // an address leaves out what is empty, and then the last runs would be drawn

export async function overview(parameters: Parameters): Promise<HTMLElement> {
  const data = await source.overview();
  const page = drawn(data, parameters);
  if (data.progress.left > 0 && !source.exported) {
    setTimeout(() => { if (page.isConnected) void overview(parameters).then((next) => page.replaceWith(next)); }, 3000);
  }
  return page;
}

function drawn(data: Overview, parameters: Parameters): HTMLElement {
  const chosen = "runs" in parameters ? parameters.runs.split("\n").filter(Boolean) : data.runs.slice(-OVERLAID).map((run) => run.id);
  const shown = data.runs.filter((run) => chosen.includes(run.id));
  const panels = PANELS.map((panel) => draw(panel, data.runs, shown)).filter((each) => each !== null);
  const heading = shown.some((run) => run.steps > 1) ? "Over training steps" : "Figures";
  const others = [...new Set(shown.flatMap((run) => Object.keys(run.curves)))].filter((name) => !KNOWN.has(name)).sort();
  return h("div", { class: "overview" },
    h("header", { class: "title" },
      h("h1", {}, data.path.split("/").filter(Boolean).at(-1) ?? data.path),
      h("p", { class: "muted" }, `${plural(data.progress.trajectories, "trajectory", "trajectories")} · ${plural(data.runs.length, "run")} · ${plural(data.progress.files, "file")}`),
    ),
    data.progress.left > 0 && h("p", { class: "note", role: "status" }, `Still indexing: ${plural(data.progress.left, "file")} left. What is there can be seen already.`),
    data.runs.length > 0 && runs(data, chosen),
    panels.length > 0 && h("section", { "aria-label": heading }, h("h2", {}, heading), h("div", { class: "figures" }, panels)),
    others.length > 0 && h("details", {}, h("summary", {}, `Also logged: ${plural(others.length, "metric")}`),
      h("div", { class: "figures" }, others.map((name) => draw({ title: name, note: "as logged", curves: [[name, ""]] }, data.runs, shown)))),
    data.evaluations.length > 0 && evaluations(data.evaluations),
    data.problems.length > 0 && h("details", {}, h("summary", {}, `${plural(data.problems.length, "file")} left out: not a store's, or broken`),
      h("ul", { class: "problems" }, data.problems.map((each) => h("li", {}, visible(each.problem))))),
  );
}

function draw(panel: Panel, runs: Run[], shown: Run[]): HTMLElement | null {
  const lines: Line[] = [];
  for (const run of shown) {
    for (const [place, [name, label]] of panel.curves.entries()) {
      const curve = run.curves[name];
      if (curve?.steps.length) lines.push({ label: label ? `${visible(run.id)} ${label}` : visible(run.id), curve, colour: runs.indexOf(run), dashed: place > 0 });
    }
  }
  if (lines.length === 0) return null;
  const open = (step: number) => go("list", { step_min: String(step), step_max: String(step), ...(shown.length === 1 ? { run: shown[0].id } : {}) });
  return figure(panel.title, panel.note, lines, source.exported ? undefined : open);
}

function runs(data: Overview, chosen: string[]): HTMLElement {
  const last = (run: Run, name: string) => decimal(run.curves[name]?.values.at(-1));
  const toggle = (id: string) => go("", { runs: data.runs.map((run) => run.id).filter((each) => (each === id) !== chosen.includes(each)).join("\n") || NONE });
  const has = (name: string) => data.runs.some((run) => name in run.curves);
  const all: [label: string, shown: boolean, value: (run: Run) => string][] = [
    ["Trajectories", true, (run) => count(run.trajectories)], ["Steps", data.runs.some((run) => run.steps > 1), (run) => count(run.steps)], ["Tasks", true, (run) => count(run.tasks)],
    ["Reward", has("reward"), (run) => last(run, "reward")], ["Accuracy", has("accuracy"), (run) => last(run, "accuracy")],
    ["Failed calls", has("errors_per_trajectory"), (run) => last(run, "errors_per_trajectory")],
  ];
  const columns = all.filter(([, shown]) => shown);
  const rows = data.runs.map((run, place) =>
    h("tr", {},
      h("td", {}, h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.includes(run.id), onchange: () => toggle(run.id), "aria-label": `Draw ${run.id}` }), swatch(place))),
      h("th", { scope: "row" }, run.trajectories > 0 ? h("a", { href: address("list", { run: run.id }) }, visible(run.id) || "(no name)") : visible(run.id)),
      columns.map(([, , value]) => h("td", { class: "n" }, value(run)))));
  return h("section", { "aria-label": "Runs" }, h("h2", {}, "Runs"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, ["Draw", "Run", ...columns.map(([label]) => label)].map((name, place) => h("th", { scope: "col", class: place > 1 ? "n" : "" }, name)))),
      h("tbody", {}, rows))),
    data.runs.some((run) => run.steps > 1) && h("p", { class: "muted small" }, "Reward, accuracy and failed calls per trajectory are those of the last step."));
}

function evaluations(found: Evaluation[]): HTMLElement {
  const wanted = /^(pass@|errors_|recovery|right_after)/;
  const sets = [...new Set(found.flatMap((each) => each.figures.map((line) => `${line.set}\n${line.repair}`)))];
  return h("section", { "aria-label": "Evaluations" }, h("h2", {}, "Evaluations"), sets.map((set) => {
    const [name, repair] = set.split("\n");
    const of = (each: Evaluation) => each.figures.filter((line) => line.set === name && line.repair === repair && wanted.test(line.figure));
    const figures = [...new Set(found.flatMap((each) => of(each).map((line) => line.figure)))];
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Evaluation on ${name}` }, h("table", { class: "plain" },
      h("caption", {}, `${visible(name)}, repair ${repair}`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), figures.map((figure) => h("th", { scope: "col", class: "n" }, figure.replaceAll("_", " "))))),
      h("tbody", {}, found.filter((each) => of(each).length > 0).map((each) => h("tr", {}, h("th", { scope: "row", title: each.file }, visible(each.model)),
        figures.map((figure) => {
          const line = of(each).find((one) => one.figure === figure);
          return h("td", { class: "n" }, decimal(line?.value), line?.low != null && h("span", { class: "interval" }, `${decimal(line.low)} – ${decimal(line.high)}`));
        }))))));
  }), h("p", { class: "muted small" }, "With 95 % intervals over problems, where the evaluation gave them."));
}
