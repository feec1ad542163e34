// Programs with their syntax coloured: from a tree to elements, never through markup.

import bash from "highlight.js/lib/languages/bash";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import sql from "highlight.js/lib/languages/sql";
import { createLowlight } from "lowlight";
import { h, long } from "./dom";

const lowlight = createLowlight({ bash, json, python, sql });
const LIMIT = 50_000;

interface Part { type: string; value?: string; children?: Part[]; properties?: { className?: string[] } }

export function code(text: string, language: "python" | "json" | "bash" | "sql"): HTMLElement {
  return long(text.trimEnd(), "code", (part) => {
    if (part.length > LIMIT) return document.createTextNode(part);
    return h("code", {}, (lowlight.highlight(language, part) as Part).children?.map(element));
  });
}

function element(part: Part): Node {
  if (part.type === "text") return document.createTextNode(part.value ?? "");
  return h("span", { class: part.properties?.className?.join(" ") }, part.children?.map(element));
}
