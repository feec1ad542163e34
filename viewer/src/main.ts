// The frame: header, pages by address, theme, keys.

import { clearCharts } from "./chart";
import { button, h } from "./dom";
import { help, keys } from "./keys";
import { list } from "./list";
import { overview } from "./overview";
import { address, current, FIRST_EDIT, put } from "./route";
import { source } from "./source";
import "./style.css";
import { arrive, trajectory } from "./trajectory";

const PAGES: Record<string, (parameters: Record<string, string>) => Promise<HTMLElement>> = { "": overview, list, trajectory };
const TITLES: Record<string, string> = { "": "Overview", list: "Trajectories", trajectory: "Trajectory" };

const main = h("main", { id: "main", tabindex: "-1" });
const links = [["", "Overview"], ["list", "Trajectories"]].map(([page, label]) => h("a", { href: address(page), "data-page": page }, label));
/** The title of a trajectory, for as long as its heading is scrolled away. */
const here = h("p", { class: "here-title muted", "aria-hidden": "true" });
const heading = new IntersectionObserver((entries) => { here.hidden = entries.at(-1)?.isIntersecting ?? false; }, { rootMargin: "-60px 0px 0px" });
const app = document.getElementById("app") as HTMLElement;
app.append(
  h("a", { class: "skip", href: "#main", onclick: (event: Event) => { event.preventDefault(); main.focus(); } }, "Skip to content"),
  h("header", { class: "frame" },
    h("a", { class: "brand", href: address("") }, "cleaner", h("span", {}, "view")),
    h("nav", { "aria-label": "Pages" }, links),
    here,
    h("div", { class: "frame-tools" },
      button("◐", toggleTheme, { "aria-label": "Switch between light and dark", title: "Light or dark (d)" }),
      button("?", help, { "aria-label": "Keyboard shortcuts", title: "Keys (?)" }))),
  main);

function rememberedTheme(): string | null {
  try { return localStorage.getItem("theme"); } catch { return null; /* a file may not remember */ }
}

function toggleTheme(): void {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* a file may not remember */ }
  void render();
}

let shownAt = "";

async function render(): Promise<void> {
  const at = location.hash;
  shownAt = at;
  const { page, parameters } = current();
  const make = PAGES[page] ?? PAGES[""];
  main.setAttribute("aria-busy", "true");
  main.inert = true;  // what is typed into a page on its way out would be lost unseen
  let content: HTMLElement;
  try {
    content = await make(parameters);
  } catch (error) {
    content = h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error));
  }
  if (shownAt !== at) return;
  clearCharts();
  main.replaceChildren(content);
  main.removeAttribute("aria-busy");
  main.inert = false;
  here.textContent = content.dataset.title ?? "";
  heading.disconnect();
  for (const each of content.querySelectorAll("h1")) heading.observe(each);
  document.title = `${content.dataset.title || (TITLES[page] ?? TITLES[""])} · cleaner view`;
  for (const link of links) {
    if (link.dataset.page === (page === "trajectory" ? "list" : page)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "trajectory") arrive(parameters);
}

document.documentElement.dataset.theme = rememberedTheme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
addEventListener("hashchange", () => {
  const { page, parameters } = current();
  // A link to another turn of the same trajectory needs no new page.
  const before = new URLSearchParams(shownAt.split("?")[1] ?? "");
  if (page === "trajectory" && shownAt.startsWith("#/trajectory") && before.get("id") === parameters.id && main.querySelector(".trajectory")) {
    shownAt = location.hash;
    arrive(parameters);
    return;
  }
  scrollTo(0, 0);
  void render();
});
keys(toggleTheme);
void start();

async function start(): Promise<void> {
  const id = location.hash === "" ? await source.opening().catch(() => null) : null;
  if (id !== null) put("trajectory", { id, turn: FIRST_EDIT });
  await render();
}
