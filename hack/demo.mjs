// A demo that runs, for what looks at it from outside: `page-live.mjs`, `page-load.mjs` and `observability-live.mjs`.
//
// `muster demo` makes everything below a folder for temporary files, which here is one of its own: the configuration of its `muster serve`
// and the kubeconfigs are read from there. It takes the shipped configuration from a checkout, which here is one of links to this one
// whose `manifests/muster.yaml` has an address for the page more. Everything is on loopback.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/** This checkout. */
export const checkout = join(dirname(fileURLToPath(import.meta.url)), "..");

/** What to undo, last first, also where this process is ended by a signal or fails. */
const undone = [];
const finallyDo = (what) => undone.push(what);
process.on("exit", () => {
  for (const what of undone.splice(0).reverse()) what();
});
for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]]) process.on(signal, () => process.exit(code));

/** A port that nobody listened on a moment ago. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until `look` answers something, at most so many seconds; an error of it counts as "not yet". */
export async function until(what, seconds, look) {
  const end = Date.now() + seconds * 1000;
  for (let last; ; await pause(100)) {
    try {
      const found = await look();
      if (found) return found;
    } catch (error) {
      if (error.final) throw error;
      last = error;
    }
    if (Date.now() > end) throw new Error(`gave up after ${seconds} s waiting for ${what}${last ? `: ${last.message}` : ""}`);
  }
}

/** A folder that is gone when this process is. */
export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), "muster-live-"));
  finallyDo(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  return folder;
}

/** A process of ours, which is ended with this one. */
export function start(program, args, options) {
  const child = spawn(program, args, options);
  finallyDo(() => child.exitCode === null && child.signalCode === null && child.kill("SIGKILL"));
  child.on("error", (error) => {
    console.error(`${program}: ${error.message}`);
    process.exit(1);
  });
  return child;
}

/**
 * Starts `muster demo`; ends when its `muster serve` answers. `keep`: with a gang on its nodes after the stories, until `stop`.
 * `lines` are those so far, `line` waits for one.
 */
export async function demo(muster, { speed, keep }) {
  const folder = scratch();
  const [repository, temporary] = [join(folder, "repository"), join(folder, "tmp")];
  for (const made of [repository, temporary]) mkdirSync(made);
  for (const name of readdirSync(checkout)) {
    if (name !== "manifests" && name !== ".git" && name !== "target") symlinkSync(join(checkout, name), join(repository, name));
  }
  cpSync(join(checkout, "manifests"), join(repository, "manifests"), { recursive: true });
  const page = `127.0.0.1:${await freePort()}`;
  appendFileSync(join(repository, "manifests/muster.yaml"), `page:\n  listen: ${page}\n`);

  const args = ["demo", "--repository", repository, "--speed", String(speed), ...(keep ? ["--keep"] : [])];
  const child = start(muster, args, { env: { ...process.env, TMPDIR: temporary }, stdio: ["ignore", "pipe", "inherit"] });
  const lines = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  const ended = once(child, "exit");
  const gone = () => child.exitCode !== null || child.signalCode !== null;
  const alive = () => {
    if (!gone()) return;
    throw Object.assign(new Error(`muster demo ended with ${child.exitCode ?? child.signalCode}:\n${lines.slice(-20).join("\n")}`), { final: true });
  };
  const line = (pattern, seconds) =>
    until(`a line of the demo with ${pattern}`, seconds, () => lines.find((text) => pattern.test(text)) ?? alive());
  const testbed = await until("the folder of the demo", 120, () => readdirSync(temporary).find((name) => name.startsWith("muster-testbed-")) ?? alive());
  const config = join(temporary, testbed, "muster-0.yaml");
  const { http, extender } = await until("the configuration of muster serve", 120, () => (existsSync(config) ? JSON.parse(readFileSync(config, "utf8")) : alive()));
  await until("muster serve to be ready", 120, async () => {
    alive();
    return (await fetch(`http://${http.listen}/readyz`)).ok;
  });
  return {
    page: `http://${page}/`,
    metrics: http.listen,
    extender: extender.listen,
    kubeconfig: join(temporary, testbed, "admin.kubeconfig"),
    lines,
    line,
    ended: async () => {
      const [code, signal] = await ended;
      return code ?? signal;
    },
    /** Ends it as Ctrl-C does; every process of it goes along. */
    stop: async () => {
      if (!gone()) child.kill("SIGTERM");
      await ended;
    },
  };
}
