// Has a real Prometheus scrape a live demo, and evaluates every query of the shipped dashboards and alerts: `make test-observability-live`
// builds what it needs and runs it.
//
//   node observability-live.mjs MUSTER PROMETHEUS PROMTOOL
//
// What a scraper gets that asks for plain text is held against `promtool check metrics`, which has nothing to say of it.
// Prometheus scrapes as the shipped PodMonitor has it, with the labels of a target that the Prometheus operator sets, and evaluates the
// shipped alerts. When the four stories are through, each query has to have returned a series at some moment of them, and so has each
// selector in it: a comparison that is silent hides a name that nobody exports. What returns nothing stands in
// `prometheus/returns-nothing.txt` with the reason, and nothing else stands there. Everything is on loopback.
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { checkout, demo, freePort, scratch, start, until } from "./demo.mjs";

const [muster, prometheus, promtool] = process.argv.slice(2);
const SHIPPED = join(checkout, "manifests/observability");
const LIST = "hack/prometheus/returns-nothing.txt";
/** A sixth of EC2's speed: states of seconds are scraped several times. */
const SPEED = 6;

/** The groups of the PrometheusRule are what Prometheus reads: `spec` without its indent. */
function rules() {
  const text = readFileSync(join(SHIPPED, "rules.yaml"), "utf8");
  return text.slice(text.indexOf("\nspec:\n") + "\nspec:\n".length).replace(/^ {2}/gm, "");
}

/** Queries of the panels; each ConfigMap has one dashboard, in a block of text. */
function dashboards() {
  const files = readdirSync(SHIPPED).filter((name) => name.startsWith("dashboard-"));
  return files.flatMap((file) => {
    const text = readFileSync(join(SHIPPED, file), "utf8");
    const block = text.slice(text.search(/^ {2}\S+\.json: \|$/m)).split("\n").slice(1);
    const { panels } = JSON.parse(block.join("\n"));
    return panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }) => ({ where: `${file}: ${panel.title}`, expr })));
  });
}

/** Lines are queries, and the lines with `#` before them the reason. */
function list() {
  const entries = new Map();
  let reason = [];
  let before = "";
  for (const line of readFileSync(join(checkout, LIST), "utf8").split("\n").map((line) => line.trim())) {
    if (line.startsWith("#")) reason = before.startsWith("#") ? [...reason, line.slice(1).trim()] : [line.slice(1).trim()];
    else if (line) entries.set(line, reason.join(" "));
    else reason = [];
    before = line;
  }
  return entries;
}

const podMonitor = readFileSync(join(checkout, "manifests/monitoring/pod-monitor.yaml"), "utf8");
const honorLabels = /^ +honorLabels: true$/m.test(podMonitor);

const failures = [];
const began = Date.now();
const say = (what) => console.log(`observability: ${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);

const cluster = await demo(muster, { speed: SPEED, keep: true });
say(`the demo runs, and its metrics are at ${cluster.metrics}`);

const folder = scratch();
writeFileSync(join(folder, "rules.yaml"), rules());
writeFileSync(
  join(folder, "prometheus.yaml"),
  JSON.stringify({
    global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "1s" },
    rule_files: [join(folder, "rules.yaml")],
    scrape_configs: [
      {
        job_name: "muster-system/muster",
        honor_labels: honorLabels,
        static_configs: [
          {
            targets: [cluster.metrics],
            labels: { namespace: "muster-system", pod: "muster-0", container: "muster", endpoint: "http" },
          },
        ],
      },
    ],
  }),
);
const address = `127.0.0.1:${await freePort()}`;
const server = start(
  prometheus,
  [
    `--config.file=${join(folder, "prometheus.yaml")}`,
    `--storage.tsdb.path=${join(folder, "data")}`,
    `--web.listen-address=${address}`,
    "--log.level=error",
  ],
  { stdio: ["ignore", "inherit", "inherit"], cwd: folder },
);

async function ask(path, parameters = {}) {
  const response = await fetch(`http://${address}/api/v1/${path}`, { method: "POST", body: new URLSearchParams(parameters) });
  const answer = await response.json();
  if (answer.status !== "success") throw new Error(`${path} ${parameters.query ?? ""}: ${answer.error}`);
  return answer.data;
}
const rulesNow = async () => (await (await fetch(`http://${address}/api/v1/rules`)).json()).data.groups.flatMap((group) => group.rules);

// Nothing is looked at before the lease has a holder: that there is none yet is what an alert is for.
const leads = async () => (await ask("query", { query: "sum(muster_leader) == 1" })).result.length > 0;
await until("Prometheus to see who holds the lease", 60, leads);
const from = Date.now() / 1000;
say(`Prometheus scrapes every second, ${honorLabels ? "with" : "without"} honorLabels`);
for (const story of ["1", "2", "3", "4"]) say((await cluster.line(new RegExp(`^${story}  `), 120)).trim());
await cluster.line(/Everything runs until/, 240);
// The last gang is scraped too, and evaluated.
await pause(5_000);
const to = Date.now() / 1000;
say("the stories are through");

const plain = await fetch(`http://${cluster.metrics}/metrics`, { headers: { accept: "text/plain;version=0.0.4" } });
const scrape = await plain.text();
const checked = spawnSync(promtool, ["check", "metrics"], { input: scrape, encoding: "utf8" });
const complaints = `${checked.stdout}${checked.stderr}`.trim();
const lines = scrape.split("\n").filter((line) => line && !line.startsWith("#")).length;
if (!plain.headers.get("content-type")?.startsWith("text/plain")) failures.push(`not plain text: ${plain.headers.get("content-type")}`);
if (lines < 100) failures.push(`the scrape has ${lines} series alone`);
if (checked.status !== 0 || complaints) failures.push(`promtool check metrics: ${complaints || checked.status}`);
say(`promtool check metrics ${complaints ? "complains" : "is silent"} on ${lines} series in plain text`);

/** One way to write a query. */
const written = async (query) => (await ask("format_query", { query })).replace(/\s+/g, " ");

/** The series that a query returned at some moment, with a number in it. */
async function series(query) {
  const { result } = await ask("query_range", { query, start: from, end: to, step: "1" });
  return result.filter(({ values }) => values.some(([, value]) => value !== "NaN")).map(({ metric }) => metric);
}

/** Every selector of a parsed query, as text. */
function selectors(node) {
  if (Array.isArray(node)) return node.flatMap(selectors);
  if (node === null || typeof node !== "object") return [];
  if (node.type === "vectorSelector" || node.type === "matrixSelector") {
    const matchers = node.matchers.filter(({ name, value }) => name !== "__name__" || value !== node.name);
    const text = matchers.map(({ name, type, value }) => `${name}${type}${JSON.stringify(value)}`).join(",");
    return [matchers.length > 0 ? `${node.name}{${text}}` : node.name];
  }
  return Object.values(node).flatMap(selectors);
}

/** Labels by which the outermost aggregation groups. */
const grouping = (node) => (node?.type === "aggregation" && !node.without ? node.grouping : []);

// What is looked at, each once, with where it comes from.
const looked = new Map();
const add = (query, where, by = []) => {
  const entry = looked.get(query) ?? { where: [], by };
  entry.where.push(where);
  looked.set(query, entry);
};
const evaluated = await rulesNow();
for (const { name, health, lastError } of evaluated) {
  if (health !== "ok") failures.push(`alert ${name}: ${health} ${lastError ?? ""}`);
}
const panels = dashboards();
const queries = [...panels, ...evaluated.map(({ name, query }) => ({ where: `alert ${name}`, expr: query }))];
for (const { where, expr } of queries) {
  const tree = await ask("parse_query", { query: expr });
  add(await written(expr), where, grouping(tree));
  for (const selector of selectors(tree)) add(await written(selector), where);
}

const listed = new Map();
for (const [query, reason] of list()) {
  const known = await written(query);
  if (!reason) failures.push(`${LIST}: no reason before ${query}`);
  if (!looked.has(known)) failures.push(`${LIST}: no query and no selector of one is ${query}`);
  listed.set(known, reason);
}
let returned = 0;
for (const [query, { where, by }] of looked) {
  const found = await series(query);
  const users = [...new Set(where)].join(", ");
  if (found.length > 0) returned += 1;
  if (found.length === 0 && !listed.has(query)) failures.push(`returns nothing: ${query} (${users})`);
  const silent = listed.has(query) && !listed.get(query).startsWith("sometimes:");
  if (found.length > 0 && silent) failures.push(`${LIST}: returns ${found.length} series after all: ${query} (${users})`);
  const missing = found.length > 0 ? by.filter((label) => found.every((metric) => !(label in metric))) : [];
  if (missing.length > 0) failures.push(`no series has the label ${missing.join(", ")}: ${query} (${users})`);
}

// A label of ours under another name is one by which no query groups.
const renamed = (await (await fetch(`http://${address}/api/v1/labels`)).json()).data.filter((label) => label.startsWith("exported_"));
for (const label of renamed) {
  const of = await ask("query", { query: `count by (__name__) (last_over_time({${label}!=""}[10m]))` });
  const names = of.result.map(({ metric }) => metric.__name__).sort();
  failures.push(`the label ${label.slice("exported_".length)} of ${names.join(", ")} is the target's, and Muster's is ${label}`);
}

server.kill("SIGTERM");
await once(server, "exit");
await cluster.stop();
for (const failure of failures) console.error(`observability: ${failure}`);
const counts = `${panels.length} queries of dashboards, ${evaluated.length} alerts, ${looked.size} different ones with their selectors`;
say(`${counts}: ${returned} returned series, ${looked.size - returned} nothing, ${listed.size} are listed; ${failures.length} failures`);
process.exitCode = failures.length === 0 ? 0 : 1;
