// Builds the page into the Python package: one script, one style sheet, the licences of what they hold.
// The same sources and the same lock file give the same bytes; a test rebuilds and compares.
import { build } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";

const out = process.argv[2] ?? "../src/cleaner_rl/view/assets";
await mkdir(out, { recursive: true });
const result = await build({
  entryPoints: { app: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  outdir: out,
  external: [],
});
await writeFile(`${out}/index.html`, await readFile("src/index.html"));
await writeFile(`${out}/icon.svg`, await readFile("src/icon.svg"));

const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/);
  if (found) packages.add(found[1]);
}
const licences = [];
for (const name of [...packages].sort()) {
  const about = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
  let text = null;
  for (const file of ["LICENSE", "license", "LICENSE.md", "LICENSE.txt"]) {
    text ??= await readFile(`node_modules/${name}/${file}`, "utf8").catch(() => null);
  }
  if (text === null) throw new Error(`${name} has no licence file`);
  licences.push(`${name} ${about.version} (${about.license})\n\n${text.trim()}\n`);
}
await writeFile(`${out}/LICENSES.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
