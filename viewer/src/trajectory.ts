// One trajectory: what happened turn by turn, what was changed and why, and the others of its group.

import { badge, count, decimal, h, long, plural, visible } from "./dom";
import { edits, fileOf, lastList, nameOf, outcome, rescueNote, titleOf } from "./list";
import { address, FIRST_EDIT, go, put, trajectoryAddress } from "./route";
import { source } from "./source";
import { COLOURINGS, tokenSpan, type Colouring } from "./tokens";
import { isRepaired, turnCard, turnLook } from "./turn";
import type { Parameters, Row, Tokens, Trajectory, Turn, Verdict } from "./types";

const SHORT = 1200;
const RECOVERY = "recovery";
const SHOWN: [view: string, label: string, note: string][] = [
  ["", "Clean view", "The correction replaces the failed call, and all that the model wrote is in the loss."],
  [RECOVERY, "Recovery view", "The rollout as it was sampled. Failed turns are in the context, and not in the loss."],
];
let colouring: Colouring = "off";

export async function trajectory(parameters: Parameters): Promise<HTMLElement> {
  const found = await source.trajectory(parameters.id ?? "");
  const body = h("div", { class: "turns" });
  const tokenNote = h("p", { class: "muted small", role: "status" });
  const viewNote = h("p", { class: "muted small", role: "status" });
  const turnList = h("div", {});
  let view = found.recovery !== null && parameters.view === RECOVERY ? RECOVERY : "";
  let tokens: Tokens | null = null;

  const draw = async () => {
    if (colouring !== "off" && tokens === null) tokens = await source.tokens(found.id);
    const isRecovery = view === RECOVERY;
    const { turns, length, in_loss } = isRecovery && found.recovery !== null ? found.recovery : found;
    const spans = (isRecovery ? tokens?.recovery : tokens?.spans) ?? [];
    const of = (turn: number) => (colouring === "off" ? null : spans.filter((span) => span.turn === turn).map((span) => tokenSpan(span, colouring)));
    viewNote.textContent = `${SHOWN.find(([name]) => name === view)?.[2]} In the loss: ${count(in_loss)} of ${count(length)} ${found.unit}.${trainedOn(found)}`;
    turnList.replaceChildren(outline(found.id, turns, view));
    tokenNote.textContent = COLOURINGS.find(([name]) => name === colouring)?.[2] ?? "";
    body.replaceChildren(
      h("details", { class: "prompt", open: colouring !== "off" || found.prompt.text.length < SHORT }, h("summary", {}, "Prompt"), of(-1) ?? long(found.prompt.text, "prose")),
      ...turns.map((turn, index) => turnCard({
        found, turn, index, link: trajectoryAddress(found.id, index, view), tokens: of(index), isRecovery, nextEdit: () => void nextEdit(index),
      })));
  };
  /** The next edit of this trajectory, or the first one of the next trajectory in the list. */
  const nextEdit = async (from: number) => {
    const turn = found.turns.findIndex((each, index) => index > from && isRepaired(each));
    if (turn >= 0) return go("trajectory", { id: found.id, turn: String(turn) });
    const next = await source.nextEdit(found.id, lastList);
    if (next !== null) return go("trajectory", { id: next, turn: FIRST_EDIT });
    const last = [...body.querySelectorAll<HTMLButtonElement>(".next-edit")].at(-1);
    if (last) { last.textContent = "Last edit of the list"; last.disabled = true; }
  };
  await draw();
  const choose = (name: Colouring) => {
    colouring = name;
    for (const each of picker.querySelectorAll("input")) each.checked = each.value === name;
    void draw();
  };
  const picker = h("fieldset", { class: "segmented", id: "colouring" }, h("legend", { class: "hidden" }, "Show tokens"),
    COLOURINGS.map(([name, label]) => h("label", {}, h("input", { type: "radio", name: "colouring", value: name, checked: name === colouring, onchange: () => choose(name) }), h("span", {}, label))));
  const show = (name: string) => {
    view = name;
    put("trajectory", { id: found.id, view });
    void draw();
  };
  const views = h("fieldset", { class: "segmented", id: "views" }, h("legend", { class: "hidden" }, "View of the rollout"),
    SHOWN.map(([name, label]) => h("label", {}, h("input", { type: "radio", name: "view", value: name, checked: name === view, onchange: () => show(name) }), h("span", {}, label))));
  const page = h("article", { class: "trajectory", "data-title": titleOf({ title: found.title, task: found.key.task }) },
    head(found),
    h("div", { class: "columns" },
      h("div", { class: "main" }, found.recovery !== null && h("div", { class: "tools" }, views, viewNote), found.unit === "tokens" && h("div", { class: "tools" }, picker, tokenNote), body),
      h("aside", { "aria-label": "About this trajectory" }, turnList, group(found), facts(found))));
  page.addEventListener("turn", ((event: CustomEvent<number>) => put("trajectory", { id: found.id, turn: String(event.detail), view })) as EventListener);
  page.addEventListener("next-edit", () => void nextEdit(Number(/^turn-(\d+)$/.exec(document.activeElement?.closest("section.turn")?.id ?? "")?.[1] ?? -1)));
  page.addEventListener("colouring", () => choose(COLOURINGS[(COLOURINGS.findIndex(([name]) => name === colouring) + 1) % COLOURINGS.length][0]));
  return page;
}

/** Bring the turn that the address names into view; or the top. */
export function arrive(parameters: Parameters): void {
  const turn = parameters.turn === FIRST_EDIT ? document.querySelector<HTMLElement>("section.turn.edit") : document.getElementById(`turn-${parameters.turn}`);
  if (!turn) return scrollTo(0, 0);
  turn.scrollIntoView();
  turn.focus({ preventScroll: true });
  if (parameters.turn === FIRST_EDIT) put("trajectory", { ...parameters, turn: turn.id.slice("turn-".length) });
}

function head(found: Trajectory): HTMLElement {
  const { key, source: log } = found;
  const named = { title: found.title, task: key.task };
  const about = [
    visible(found.run_id), log === null && nameOf(named), (log === null || key.step > 0) && `step ${count(key.step)}`,
    plural(found.turns.length, "turn"), `${count(found.length)} ${found.unit}`,
  ].filter(Boolean).join(" · ");
  const verdict = found.siblings.find((each) => each.id === found.id)?.verdict;
  const place = found.siblings.findIndex((each) => each.id === found.id);
  const step = (to: Row | undefined, label: string, id: string) => to !== undefined && h("a", { class: "button", id, href: trajectoryAddress(to.id), title: `${label} rollout of this group` }, label);
  return h("header", { class: "title" },
    h("p", { class: "crumbs" }, h("a", { href: address("list", lastList), id: "back" }, "← Trajectories")),
    h("div", { class: "line" },
      h("h1", {}, titleOf(named), found.source === null && h("span", { class: "muted" }, ` #${key.rollout}`)),
      h("div", { class: "steps" }, step(found.siblings[place - 1], "Previous", "previous"), step(found.siblings[place + 1], "Next", "next"))),
    h("p", { class: "badges" },
      (log === null || found.success !== null) && outcome(found), found.reward !== null && badge(`reward ${decimal(found.reward)}`, "plain"),
      found.stop_reason !== null && badge(found.stop_reason.replace("_", " "), found.stop_reason === "answered" ? "plain" : "bad"),
      verdict?.kept !== undefined && badge(verdict.kept ? "kept by RoC" : "not kept by RoC", verdict.kept ? "good" : "plain"),
      rescue(found), h("span", { class: "muted" }, about)),
    log?.file && h("p", { class: "muted small lineage" }, visible(`${log.file}${log.line === null ? "" : `:${log.line}`}`), log.id !== null && ` · record ${visible(log.id)}`),
    verdict?.why && h("p", { class: "muted small" }, `RoC: ${visible(verdict.why)}.`));
}

/** Which views the trainer took, where the store says so. */
function trainedOn(found: Trajectory): string {
  const verdict = found.info.verdict as Verdict | undefined;
  if (verdict?.kept === undefined) return "";
  return verdict.kept ? ` Trained on: ${visible((verdict.views ?? ["clean"]).join(" and "))} view.` : " Not trained on.";
}

/** Whom this rollout rescued, or by whom it was rescued. */
function rescue(found: Trajectory): HTMLElement[] {
  const own = found.siblings.find((each) => each.id === found.id);
  const rescued = found.siblings.find((each) => each.rollout === own?.rescue_of);
  const rescuer = found.siblings.find((each) => each.rescue_of === found.key.rollout);
  const mark = (to: Row | undefined, words: string, why: string) => to === undefined ? badge(words, "plain", why) : h("a", { class: "badge plain", href: trajectoryAddress(to.id), title: why }, words);
  return [
    ...(own !== undefined && own.rescue_of !== null ? [mark(rescued, `rescue of #${own.rescue_of}, turn ${own.rescue_turn}`, rescueNote(own))] : []),
    ...(rescuer !== undefined ? [mark(rescuer, `rescued by #${rescuer.rollout}`, "All rollouts of the group were wrong, and this one was repaired and continued.")] : []),
  ];
}

function outline(id: string, turns: Turn[], view: string): HTMLElement {
  return h("nav", { class: "outline card", "aria-label": "Turns" }, h("h2", {}, "Turns"),
    h("ol", { start: "0" }, turns.map((turn, index) => {
      const look = turnLook(turn);
      return h("li", {}, h("a", { href: trajectoryAddress(id, index, view) },
        h("span", { class: "number" }, index), h("span", { class: `dot ${look.kind}` }), h("span", {}, look.label)));
    })));
}

function group(found: Trajectory): HTMLElement | null {
  if (found.siblings.length < 2) return null;
  const solved = found.siblings.filter((each) => each.success).length;
  const kept = found.siblings.filter((each) => each.kept).length;
  const cut = found.rollouts > found.siblings.length ? `The first ${count(found.siblings.length)} of ` : "";
  return h("section", { class: "group card", "aria-label": "Group" }, h("h2", {}, "Group"),
    h("p", { class: "muted small" }, `${cut}${plural(found.rollouts, found.source === null ? "rollout" : "record")} of this task${found.source === null || found.key.step > 0 ? " at this step" : ""}${found.siblings.some((each) => each.success !== null) ? `, ${solved} solved` : ""}${found.siblings.some((each) => each.kept !== null) ? `, ${kept} kept` : ""}.`),
    h("ul", { class: "siblings" }, found.siblings.map((each) => h("li", { class: each.id === found.id ? "here" : "" },
      h("a", { href: trajectoryAddress(each.id), "aria-current": each.id === found.id ? "page" : null },
        h("span", { class: "number" }, each.source === null ? `#${each.rollout}` : fileOf(each.source)),
        h("span", { class: `dot ${each.success === null ? "none" : each.success ? "good" : "bad"}`, title: each.success ? "solved" : "not solved" }),
        found.siblings.some((other) => other.reward !== null) && h("span", { class: "reward" }, decimal(each.reward)),
        h("span", { class: "what" }, each.failed > 0 && badge(plural(each.failed, "failed call"), "bad"), edits(each)),
        each.kept !== null && h("span", { class: each.kept ? "kept" : "left" }, each.kept ? "kept" : "left out")),
      each.verdict?.why && h("p", { class: "why" }, visible(each.verdict.why), each.verdict.penalty != null && ` · penalty ${decimal(each.verdict.penalty)}`, each.verdict.advantage != null && ` · advantage ${decimal(each.verdict.advantage)}`)))));
}

function facts(found: Trajectory): HTMLElement {
  const { verdict: _, rescued: __, other, ...info } = found.info;
  const { key, source: log } = found;
  const where: [string, unknown][] = log === null
    ? [["Phase", key.phase], ["Step", count(key.step)], ["Task", key.task], ["Rollout", key.rollout]]
    : [["Format", log.format], ["Task", key.task]];
  const lines: [string, string][] = [
    ["Run", found.run_id], ...where.filter(([, value]) => value !== null).map(([name, value]): [string, string] => [name, String(value)]),
    ["Length", `${count(found.length)} ${found.unit}`], ["Stored at", found.id],
    ...Object.entries({ ...info, ...(other as Record<string, unknown> | undefined) }).map(([name, value]): [string, string] => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  ];
  return h("section", { class: "card", "aria-label": "Facts" }, h("h2", {}, "Facts"),
    h("dl", {}, lines.map(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, value.length > 300 ? long(value, "") : visible(value))])));
}
