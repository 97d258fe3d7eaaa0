// `muster top` in a real terminal, the completion of names in three shells, and what goes wrong, on a live demo: `make test-top-live` builds
// what it needs and runs it.
//
//   node top-live.mjs MUSTER KUBECTL [FOLDER]
//
// tmux is the terminal, with a server of its own: at 80x24 and 200x60, resized while it runs, without colours, piped, and with a connection
// that is cut and comes back. After `q` the terminal has to be as before: its own screen, its cursor, its echo. Screens are kept in FOLDER.
// Everything is on loopback.
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { demo, scratch, until } from "./demo.mjs";

const [muster, kubectl, shots] = process.argv.slice(2).map((path) => resolve(path));
if (shots) mkdirSync(shots, { recursive: true });
const ESCAPE = String.fromCharCode(27);
const SIZES = [
  [80, 24],
  [200, 60],
];

const began = Date.now();
const failures = [];
let checks = 0;
const say = (what) => console.log(`top-live: ${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);
function check(right, what) {
  checks += 1;
  if (!right) failures.push(what);
}

const folder = scratch();
for (const name of ["muster", "kubectl-muster", "kubectl_complete-muster"]) symlinkSync(muster, join(folder, name));
symlinkSync(kubectl, join(folder, "kubectl"));
const PATH = `${folder}:${process.env.PATH}`;

const cluster = await demo(muster, { speed: 60, keep: true });
await cluster.line(/Everything runs until/, 240);
say("the demo runs, its stories are through");
const environment = { ...process.env, PATH, KUBECONFIG: cluster.kubeconfig, TERM: "xterm-256color", HOME: folder, NO_COLOR: undefined, LC_ALL: "C.UTF-8" };

const run = (args, more = {}) => spawnSync(join(folder, args[0]), args.slice(1), { env: { ...environment, ...more }, encoding: "utf8", timeout: 60_000 });
const overview = JSON.parse(run(["muster", "top", "-o", "json"]).stdout);
const [gang] = overview.gangs;
say(`${overview.gangs.length} gangs, the first is ${gang.namespace}/${gang.name}; ${overview.nodes.length} nodes`);

/** A server of tmux that reads no configuration and ends with this process. */
const socket = join(folder, "tmux");
function tmux(...args) {
  const done = spawnSync("tmux", ["-S", socket, "-f", "/dev/null", ...args], { env: environment, encoding: "utf8" });
  if (done.status !== 0) throw new Error(`tmux ${args.join(" ")}: ${done.stderr}`);
  return done.stdout;
}
process.on("exit", () => spawnSync("tmux", ["-S", socket, "kill-server"]));

/** A terminal with a shell in it. */
class Terminal {
  constructor(name, [columns, rows], shell = ["bash", "--norc", "--noprofile"], more = {}) {
    this.name = name;
    const set = Object.entries({ PATH, KUBECONFIG: cluster.kubeconfig, HOME: folder, PS1: "ready> ", ...more }).flatMap(([key, value]) => ["-e", `${key}=${value}`]);
    tmux("new-session", "-d", "-s", name, "-x", String(columns), "-y", String(rows), ...set, ...shell);
  }
  keys(...keys) {
    tmux("send-keys", "-t", this.name, ...keys);
  }
  line(text) {
    tmux("send-keys", "-t", this.name, "-l", text);
    this.keys("Enter");
  }
  screen(...args) {
    return tmux("capture-pane", "-p", "-t", this.name, ...args);
  }
  /** What tmux knows of it. */
  is(format) {
    return tmux("display-message", "-p", "-t", this.name, `#{${format}}`).trim();
  }
  shows(pattern, seconds = 30) {
    return until(`${pattern} in the terminal ${this.name}`, seconds, () => {
      const screen = this.screen();
      if (pattern.test(screen)) return screen;
      throw new Error(`\n${screen}`);
    });
  }
  resize([columns, rows]) {
    tmux("resize-window", "-t", this.name, "-x", String(columns), "-y", String(rows));
  }
  keep(what) {
    if (shots) writeFileSync(join(shots, `${this.name}-${what}.txt`), this.screen());
  }
  /** After the program has ended: what is typed is echoed, on the screen of the shell, with a cursor. */
  async isClean(what) {
    await until(`the screen of the shell after ${what}`, 20, () => this.is("alternate_on") === "0");
    this.line("stty -a | grep -c ' echo ' ; echo sum-$((20+3))");
    const screen = await this.shows(/sum-23/).catch(() => "");
    check(/echo sum-\$\(\(20\+3\)\)/.test(screen), `${this.name}: after ${what} nothing typed is echoed`);
    check(/^1\s*$/m.test(screen), `${this.name}: after ${what} the terminal does not echo by itself`);
    check(this.is("cursor_flag") === "1", `${this.name}: after ${what} there is no cursor`);
    check(this.is("mouse_any_flag") === "0", `${this.name}: after ${what} the mouse is still reported`);
  }
  close() {
    tmux("kill-session", "-t", this.name);
  }
}

/** Something is drawn, and the last line of the screen with it: nothing scrolled away. */
function fills(terminal, what) {
  const lines = terminal.screen().split("\n").slice(0, -1);
  const rows = Number(terminal.is("window_height"));
  check(lines.length === rows && lines.filter((line) => line.trim()).length > 3, `${terminal.name}: ${what} is empty:\n${lines.join("\n")}`);
  check(lines[rows - 1].trim() !== "", `${terminal.name}: ${what} has no last line:\n${lines.join("\n")}`);
}

const HEAD = new RegExp(gang.name);
for (const [index, size] of SIZES.entries()) {
  const terminal = new Terminal(`top-${size.join("x")}`, size);
  await terminal.shows(/ready>/);
  terminal.line("muster top");
  await terminal.shows(/nodes/i);
  check(terminal.is("alternate_on") === "1", `${terminal.name}: it draws on the screen of the shell`);
  terminal.keep("first");
  fills(terminal, "the first screen");
  terminal.keys("?");
  await terminal.shows(/this help/);
  terminal.keep("help");
  terminal.keys("Escape");
  for (const pane of ["2 Gangs", "3 Batches", "4 Fits now", "5 Pools", "1 Topology"]) {
    terminal.keys("Tab");
    await terminal.shows(new RegExp(`\\[${pane}\\]`));
    fills(terminal, pane);
    terminal.keep(pane.slice(2).replace(" ", "-").toLowerCase());
  }
  terminal.keys("2");
  await terminal.shows(/\[2 Gangs\]/);
  terminal.keys("Enter");
  await terminal.shows(new RegExp(`gang ${gang.namespace}/${gang.name}`));
  fills(terminal, "why a gang waits or where it is");
  terminal.keep("explained");
  terminal.keys("Escape");
  terminal.resize(SIZES[1 - index]);
  await until("the last line after a resize", 20, () => terminal.screen().split("\n").at(-2).includes("? help"));
  fills(terminal, "the screen after a resize");
  terminal.keep("resized");
  terminal.resize([40, 6]);
  await until("something on a very small screen", 20, () => terminal.screen().trim() !== "");
  terminal.resize(size);
  await terminal.shows(/nodes/i);
  terminal.keys("q");
  await terminal.isClean("q");
  terminal.line("clear; muster top");
  await until("muster top again", 20, () => terminal.is("alternate_on") === "1");
  terminal.keys("C-c");
  await terminal.isClean("Ctrl-C");
  terminal.close();
}
say("80x24 and 200x60: drawn, resized, left");

const coloured = (text) => new RegExp(`${ESCAPE}\\[[0-9;]*(3[0-7]|38|9[0-7]|4[0-7]|48|10[0-7])[;0-9]*m`).test(text);
for (const [name, more, wanted] of [
  ["colours", {}, true],
  ["no-color", { NO_COLOR: "1" }, false],
]) {
  const terminal = new Terminal(name, SIZES[1], undefined, more);
  terminal.line("muster top");
  await terminal.shows(/nodes/i);
  check(coloured(terminal.screen("-e")) === wanted, `${name}: colours are ${wanted ? "missing" : "there"}`);
  terminal.keys("q");
  await terminal.isClean("q");
  terminal.close();
}
const piped = spawnSync("bash", ["-c", "muster top | cat; exit ${PIPESTATUS[0]}"], { env: environment, encoding: "utf8" });
check(piped.status === 0 && HEAD.test(piped.stdout) && !piped.stdout.includes(ESCAPE), `a pipe gets: ${piped.status} ${piped.stdout.slice(0, 200)}${piped.stderr}`);
const closed = spawnSync("bash", ["-c", "muster top | head -1 >/dev/null; echo ${PIPESTATUS[0]}"], { env: environment, encoding: "utf8" });
check(!/panicked/.test(closed.stderr), `a pipe that closes: ${closed.stderr}`);
say("colours, none, and pipes");

/** A way to the API server that can be cut. */
const config = JSON.parse(readFileSync(cluster.kubeconfig, "utf8"));
const target = new URL(config.clusters[0].cluster.server);
let open = true;
const sockets = new Set();
const way = createServer((near) => {
  if (!open) return near.destroy();
  const far = connect(Number(target.port), target.hostname);
  for (const [one, other] of [
    [near, far],
    [far, near],
  ]) {
    sockets.add(one);
    one.on("error", () => other.destroy()).on("close", () => {
      sockets.delete(one);
      other.destroy();
    });
  }
  near.pipe(far).pipe(near);
}).listen(0, "127.0.0.1");
await once(way, "listening");
const through = join(folder, "through.kubeconfig");
const cut = structuredClone(config);
cut.clusters[0].cluster.server = `https://127.0.0.1:${way.address().port}`;
writeFileSync(through, JSON.stringify(cut));
{
  const terminal = new Terminal("cut", SIZES[0]);
  terminal.line(`muster top --refresh 1 --kubeconfig ${through}`);
  await terminal.shows(/nodes/i);
  open = false;
  for (const one of sockets) one.destroy();
  await terminal.shows(/not current|cannot|refused|error|reset/i, 60);
  terminal.keep("lost");
  fills(terminal, "the screen without a connection");
  open = true;
  await until("the connection to be there again", 60, () => !/not current|cannot|refused|error|reset/i.test(terminal.screen()));
  open = false;
  for (const one of sockets) one.destroy();
  await terminal.shows(/not current|cannot|refused|error|reset/i, 60);
  terminal.keys("q");
  await terminal.isClean("q without a connection");
  terminal.close();
}
way.close();
say("a connection that is lost, comes back, and is lost again");

const SHELLS = [
  ["bash", ["bash", "--norc", "--noprofile"], "source <(muster completion bash)"],
  ["zsh", ["zsh", "-f"], "autoload -Uz compinit; compinit -u; source <(muster completion zsh)"],
  ["fish", ["fish", "--no-config"], "muster completion fish | source"],
];
for (const [name, shell, prepare] of SHELLS) {
  if (spawnSync(shell[0], ["-c", "true"]).status !== 0) {
    failures.push(`${name} is not installed`);
    continue;
  }
  const terminal = new Terminal(name, [160, 40], shell);
  terminal.line(`${prepare}; echo pre""pared`);
  await terminal.shows(/^prepared/m);
  terminal.keys("C-l");
  const part = gang.name.slice(0, 2);
  tmux("send-keys", "-t", name, "-l", `muster explain gang -n ${gang.namespace} ${part}`);
  terminal.keys("Tab");
  if (name !== "fish") terminal.keys("Tab");
  const shown = await terminal.shows(HEAD, 20).catch((error) => error.message);
  check(HEAD.test(shown), `${name}: ${gang.name} is not completed: ${shown}`);
  terminal.keep("completed");
  terminal.close();
}
const asked = run(["kubectl_complete-muster", "explain", "gang", "-n", gang.namespace, ""]);
check(HEAD.test(asked.stdout) && asked.stdout.trimEnd().endsWith(":4"), `kubectl_complete-muster: ${asked.stdout}${asked.stderr}`);
const byKubectl = run(["kubectl", "__complete", "muster", "explain", "gang", "-n", gang.namespace, ""]);
check(HEAD.test(byKubectl.stdout), `kubectl __complete muster: ${byKubectl.stdout}${byKubectl.stderr}`);
const plugin = run(["kubectl", "muster", "explain", "gang", gang.name, "-n", gang.namespace]);
check(plugin.status === 0 && HEAD.test(plugin.stdout), `kubectl muster: ${plugin.status} ${plugin.stdout}${plugin.stderr}`);
say("names of the cluster in bash, zsh, fish and kubectl");

const recording = join(folder, "recording.jsonl");
const [pod] = JSON.parse(run(["kubectl", "get", "pods", "-n", gang.namespace, "-o", "json"]).stdout).items;
const schedulerConfig = resolve(dirname(new URL(import.meta.url).pathname), "../scheduler-config/own-scheduler.yaml");
check(run(["muster", "record", "--out", recording]).status === 0, "muster record fails");
for (const args of [
  ["top"],
  ["explain", "gang", gang.name, "-A"],
  ["explain", "gang", gang.name, "-n", gang.namespace],
  ["explain", "node", overview.nodes[0].name],
  ["explain", "pod", pod.metadata.name, "-n", pod.metadata.namespace],
  ["explain", "reason", "DoesNotFit"],
  ["plan", "-f", recording],
  ["doctor"],
  ["gc"],
  ["uninstall", "--dry-run"],
  ["check-config", schedulerConfig],
  ["version"],
]) {
  const { status, stdout, stderr } = run(["muster", ...args, "-o", "json"]);
  let read = "";
  try {
    JSON.parse(stdout);
  } catch (error) {
    read = error.message;
  }
  check(read === "" && [0, 3, ...(args[0] === "doctor" ? [1] : [])].includes(status), `${args.join(" ")} -o json: ${status} ${read} ${stderr}`);
}
for (const [args, wanted] of [
  [["top", "--refesh", "3"], /--refresh/],
  [["explain", "gang", `${gang.name}x`, "-n", gang.namespace], new RegExp(gang.name)],
  [["explain", "gang", gang.name, "-n", "nowhere"], /nowhere/],
  [["top", "--context", "elsewhere"], /elsewhere/],
  [["explain", "pod", "-n", "kube-system", "none"], /none/],
]) {
  const { status, stderr } = run(["muster", ...args]);
  const lines = stderr.trim().split("\n");
  check(status === 2 && lines.length === 1 && wanted.test(stderr), `${args.join(" ")}: ${status}, ${lines.length} lines: ${stderr}`);
}
say("JSON of every command that prints, and one line for what is wrong");

await cluster.stop();
for (const failure of failures) console.error(`top-live: ${failure}`);
say(`${checks} checks, ${failures.length} failures`);
process.exit(failures.length === 0 ? 0 : 1);
