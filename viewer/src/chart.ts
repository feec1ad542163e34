// One figure: some lines over training steps, with what they say at the pointer above them.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { decimal, h } from "./dom";
import type { Curve } from "./types";

export interface Line { label: string; curve: Curve; colour: number; dashed?: boolean }

const COLOURS = 6;
const charts = new Set<uPlot>();

export function colour(place: number): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--series-${place % COLOURS}`).trim();
}

/** Lengths of strokes and gaps; undefined for a whole line. Once the colours are used up, runs differ in this. */
function dash(place: number, dashed = false): number[] | undefined {
  const round = Math.floor(place / COLOURS);
  if (round === 0) return dashed ? [5, 4] : undefined;
  return dashed ? [9, 3, 2 * round, 3] : [2 * round, 3];
}

/** A piece of a run's line, for legends. */
export function swatch(place: number, dashed = false): HTMLElement {
  const mark = h("span", { class: "swatch" });
  let end = 0;
  const strokes = (dash(place, dashed) ?? [1]).map((length, at) => {
    const start = end;
    end += length;
    return `${at % 2 ? "transparent" : `var(--series-${place % COLOURS})`} ${start}px ${end}px`;
  });
  mark.style.setProperty("--strokes", strokes.join(", "));
  return mark;
}

/** Ends the charts of the page before. */
export function clearCharts(): void {
  for (const chart of charts) chart.destroy();
  charts.clear();
}

export function figure(title: string, note: string, lines: Line[], open?: (step: number) => void): HTMLElement {
  const steps = [...new Set(lines.flatMap((line) => line.curve.steps))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const values = new Map(line.curve.steps.map((step, place) => [step, line.curve.values[place]]));
    return steps.map((step) => values.get(step) ?? null);
  });
  const values = lines.map(() => h("span", { class: "value" }));
  const at = h("span", { class: "at" });
  const legend = h("ul", { class: "legend" }, lines.map((line, place) =>
    h("li", {}, swatch(line.colour, line.dashed), h("span", { class: "name" }, line.label), values[place])));
  const say = (index: number | null | undefined) => {
    at.textContent = index === null || index === undefined ? "latest" : `step ${steps[index]}`;
    lines.forEach((line, place) => {
      const value = index === null || index === undefined ? line.curve.values.at(-1) : columns[place][index];
      values[place].textContent = decimal(value, 3);
    });
  };
  say(null);
  const told = lines.map((line) => `${line.label} from ${decimal(line.curve.values[0], 3)} to ${decimal(line.curve.values.at(-1), 3)}`).join("; ");
  const caption = h("figcaption", {}, h("h3", {}, title), at, h("p", {}, note));
  if (steps.length === 1) return h("figure", { class: "figure" }, caption, legend); // a log, not a run: a dot says nothing
  const plot = h("div", { class: "plot", role: "img", "aria-label": `${title} over steps ${steps[0]} to ${steps.at(-1)}: ${told}` });
  const box = h("figure", { class: "figure" }, caption, plot, legend);
  const ink = getComputedStyle(document.documentElement);
  const axis = {
    stroke: ink.getPropertyValue("--muted").trim(), font: "11px system-ui, sans-serif",
    grid: { stroke: ink.getPropertyValue("--line").trim(), width: 1 }, ticks: { show: false },
  };
  const draw = (width: number) => {
    const chart = new uPlot({
      width, height: 168, legend: { show: false }, padding: [8, 14, 0, 0],
      cursor: { sync: { key: "steps", setSeries: false }, points: { size: 7 }, drag: { x: false, y: false } },
      scales: {
        x: { time: false },
        // Around a flat line uPlot would draw from 0 to 100.
        y: { range: (_, least, most) => (least === most ? [least - 0.5, most + 0.5] : uPlot.rangeNum(least, most, 0.1, true)) },
      },
      axes: [
        { ...axis, size: 28, space: 48 },
        { ...axis, size: 46, space: 32, values: (_, ticks) => ticks.map((tick) => String(+tick.toPrecision(6))) },
      ],
      series: [{}, ...lines.map((line) => ({
        stroke: colour(line.colour), width: 2, spanGaps: true, dash: dash(line.colour, line.dashed),
        points: { show: steps.length === 2, size: 6, fill: colour(line.colour) },
      }))],
      hooks: { setCursor: [(self) => say(self.cursor.idx)] },
    }, [steps, ...columns] as uPlot.AlignedData, plot);
    charts.add(chart);
    if (open) chart.over.addEventListener("click", () => { if (chart.cursor.idx != null) open(steps[chart.cursor.idx]); });
    return chart;
  };
  let chart: uPlot | null = null;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (!box.isConnected || width === 0) return;
    if (chart === null) chart = draw(width);
    else if (charts.has(chart)) chart.setSize({ width, height: 168 });
  }).observe(plot);
  return box;
}
