// Elements out of data. Nothing here, or anywhere in this program, makes markup out of text.

export type Child = Node | string | number | null | undefined | false | Child[];
type Properties = Record<string, unknown>;

export function h(tag: string, properties: Properties = {}, ...children: Child[]): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name in element && typeof value === "boolean") (element as unknown as Properties)[name] = value;
    else element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

function append(element: HTMLElement, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

export function button(label: string, action: () => void, properties: Properties = {}): HTMLElement {
  return h("button", { type: "button", onclick: action, ...properties }, label);
}

// Characters that a terminal or a browser would act on rather than show: controls, direction marks, invisible ones.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** The same text with every such character in a form that can be seen. */
export function visible(text: string): string {
  return text.replace(/\r\n/g, "\n").replace(UNSEEN, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

const FIRST = 4000;
const FIRST_LINES = 60;
const MORE = 100_000;

/** Some text, of which a long one shows its beginning and the rest as it is asked for. */
export function long(text: string, className: string, render: (part: string) => Node = (part) => document.createTextNode(part)): HTMLElement {
  const seen = visible(text);
  let end = seen.length;
  if (seen.length > FIRST * 1.5) end = FIRST;
  const lines = nthLine(seen, FIRST_LINES * 1.5) < 0 ? -1 : nthLine(seen, FIRST_LINES);
  if (lines >= 0) end = Math.min(end, lines);
  const box = h("div", { class: `text ${className}` });
  const show = (start: number) => {
    // A part is its own element: a megabyte in one would be laid out as one line.
    box.append(h("span", {}, render(seen.slice(start, end))));
    if (end >= seen.length) return;
    const left = seen.length - end;
    const more = button(`Show ${left > MORE ? `${count(MORE)} more of ` : ""}${count(left)} characters`, () => {
      more.remove();
      const from = end;
      end = Math.min(seen.length, end + MORE);
      show(from);
    }, { class: "more" });
    box.append(more);
  };
  show(0);
  return box;
}

function nthLine(text: string, n: number): number {
  let place = -1;
  for (let line = 0; line < n; line++) {
    place = text.indexOf("\n", place + 1);
    if (place < 0) return -1;
  }
  return place;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

export function decimal(value: number | null | undefined, digits = 2): string {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : value.toFixed(digits).replace("-", "−");
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function badge(text: string, kind: string, title?: string): HTMLElement {
  return h("span", { class: `badge ${kind}`, title }, text);
}
