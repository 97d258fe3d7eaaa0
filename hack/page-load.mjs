// What the page weighs at 5,000 nodes, and what fifty open pages cost kube-scheduler: `make test-page-load` builds what it needs and runs it.
//
//   node page-load.mjs MUSTER [ROUNDS] [SECONDS]
//
// A live demo gets 5,000 nodes and sixteen gangs of 128 members. The whole page and the part that an open page gets at every change have to
// fit into 400 kB once they are compressed. Then `filter` is asked about all nodes, twenty times a second, in turn with and without fifty
// pages that ask every five seconds, as the script of the page does: the 99th percentile with them has to lie within 5 % of that without.
// Rounds of both kinds alternate, so that a busy machine slows both. Everything is on loopback.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent, request } from "node:https";
import { setTimeout as pause } from "node:timers/promises";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { gunzipSync } from "node:zlib";

const NODES = 5_000;
const GANGS = 16;
const MEMBERS = 128;
const PAGES = 50;
/** Seconds between two questions of an open page, as `hx-trigger` of the page has it. */
const EVERY = 5;
const MOST_BYTES = 400_000;
const MOST_SLOWER = 1.05;
/** Calls of `filter` per second. */
const PACE = 20;

/** One call; ends with status, headers and body. */
function call(make, agent, url, { method = "GET", headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const asked = make(url, { method, headers, agent }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
      response.on("error", reject);
    });
    asked.on("error", reject);
    asked.end(body);
  });
}

/** The tag of the state that a page shows. */
function known(page) {
  const found = /If-None-Match&quot;:&quot;\\&quot;([0-9a-f]+)/.exec(page);
  return found && `"${found[1]}"`;
}

/** Open pages, in a thread of their own so that what they read does not disturb the clock. */
async function pages() {
  const { address } = workerData;
  const agent = new PlainAgent({ keepAlive: true, maxSockets: PAGES });
  const seen = {};
  let open = true;
  parentPort.on("message", () => (open = false));
  const look = async (index) => {
    await pause((index * EVERY * 1000) / PAGES);
    let tag;
    for (let target = ""; open; target = "main") {
      const headers = { "Accept-Encoding": "gzip", ...(tag ? { "If-None-Match": tag } : {}) };
      try {
        const answer = await call(plainRequest, agent, `${address}${target}`, { headers });
        seen[answer.status] = (seen[answer.status] ?? 0) + 1;
        // The page itself has another tag than the part that changes, which it names.
        if (answer.status === 200 && target === "main") tag = answer.headers.etag;
        else if (answer.status === 200) tag = known(gunzipSync(answer.body));
      } catch (error) {
        seen[error.code ?? error.message] = (seen[error.code ?? error.message] ?? 0) + 1;
      }
      for (let waited = 0; open && waited < EVERY * 10; waited += 1) await pause(100);
    }
  };
  await Promise.all(Array.from({ length: PAGES }, (_, index) => look(index)));
  agent.destroy();
  parentPort.postMessage(seen);
}

const hex = (text, letters) => createHash("sha256").update(text).digest("hex").slice(0, letters);

/** A node as EKS has it: ten to a leaf, ten leaves to a spine, in four zones. */
function node(index) {
  const [zone, leaf] = [`us-east-1${"abcd"[Math.floor((index * 4) / NODES)]}`, Math.floor(index / 10)];
  const name = `ip-172-${16 + Math.floor(index / 250)}-0-${index % 250}.ec2.internal`;
  const spine = Math.floor(leaf / 10);
  const resources = { cpu: "192", memory: "2Ti", pods: "110", "ephemeral-storage": "500Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32" };
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      annotations: { "kwok.x-k8s.io/node": "fake" },
      labels: {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": zone,
        "topology.k8s.aws/network-node-layer-1": `nn-${hex(zone, 17)}`,
        "topology.k8s.aws/network-node-layer-2": `nn-${hex(`spine ${spine}`, 17)}`,
        "topology.k8s.aws/network-node-layer-3": `nn-${hex(`leaf ${leaf}`, 17)}`,
      },
    },
    status: { capacity: resources, allocatable: resources },
  };
}

function template(annotations, gpus, more) {
  const requests = { cpu: "1", memory: "1Gi", ...(gpus ? { "nvidia.com/gpu": String(gpus) } : {}) };
  const limits = gpus ? { "nvidia.com/gpu": String(gpus) } : {};
  const containers = [{ name: "main", image: "registry.example/none", resources: { requests, limits } }];
  return { metadata: { annotations }, spec: { schedulerName: "muster", restartPolicy: "Never", containers, ...more } };
}

function job(name) {
  const spec = { completionMode: "Indexed", completions: MEMBERS, parallelism: MEMBERS, template: template({ "muster.dev/gang": name }, 8) };
  return { apiVersion: "batch/v1", kind: "Job", metadata: { name }, spec };
}

/** 99th percentile and median, in milliseconds. */
function percentiles(times) {
  const sorted = [...times].sort((one, other) => one - other);
  return { p50: sorted[Math.floor(sorted.length / 2)], p99: sorted[Math.floor((sorted.length * 99) / 100)] };
}

async function main() {
  const { demo, until } = await import("./demo.mjs");
  const [muster, rounds = "6", seconds = "20"] = process.argv.slice(2);
  const began = Date.now();
  const say = (what) => console.log(`page-load: ${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);
  const failures = [];

  const cluster = await demo(muster, { speed: 60, keep: true });
  await cluster.line(/Everything runs until/, 240);
  say("the demo runs, its stories are through");
  const config = JSON.parse(readFileSync(cluster.kubeconfig, "utf8"));
  const { server, "certificate-authority": authority } = config.clusters[0].cluster;
  const agent = new Agent({ keepAlive: true, maxSockets: 16, ca: readFileSync(authority) });
  const headers = { Authorization: `Bearer ${config.users[0].user.token}`, "Content-Type": "application/json" };
  const create = async (path, object) => {
    const answer = await call(request, agent, `${server}${path}`, { method: "POST", headers, body: JSON.stringify(object) });
    if (answer.status !== 201) throw new Error(`create ${object.kind} ${object.metadata.name}: ${answer.status} ${answer.body}`);
    return JSON.parse(answer.body);
  };
  const nodes = Array.from({ length: NODES }, (_, index) => node(index));
  let next = 0;
  const some = async () => {
    while (next < nodes.length) await create("/api/v1/nodes", nodes[next++]);
  };
  await Promise.all(Array.from({ length: 16 }, some));
  say(`${NODES} nodes are created`);
  const list = async (path) => {
    // Not all the time: thousands of objects are work for the API server.
    await pause(5_000);
    return JSON.parse((await call(request, agent, `${server}${path}`, { headers })).body).items;
  };
  const ready = (one) => one.status.conditions?.some(({ type, status }) => type === "Ready" && status === "True");
  await until("all nodes to be ready", 600, async () => (await list("/api/v1/nodes")).filter(ready).length >= NODES);
  say("all of them are ready");
  for (let index = 0; index < GANGS; index += 1) await create("/apis/batch/v1/namespaces/demo/jobs", job(`load-${index}`));
  const bound = ({ spec, status }) => spec.source.identity.startsWith("load-") && status?.phase === "Bound";
  await until("all gangs to be bound", 900, async () => (await list("/apis/muster.dev/v1alpha1/namespaces/demo/gangs")).filter(bound).length >= GANGS);
  say(`${GANGS} gangs of ${MEMBERS} members are bound`);

  for (const target of ["", "main", "overview.json"]) {
    const { body, headers: sent } = await call(plainRequest, undefined, `${cluster.page}${target}`, { headers: { "Accept-Encoding": "gzip" } });
    const packed = body.length;
    say(`/${target}: ${gunzipSync(body).length} bytes, ${packed} as ${sent["content-encoding"]}`);
    if (target !== "overview.json" && packed > MOST_BYTES) failures.push(`/${target} is ${packed} bytes compressed, more than ${MOST_BYTES}`);
  }

  // A pod that fits on no node by kube-scheduler's own rules, and so stays what is asked about.
  const single = { apiVersion: "v1", kind: "Pod", ...template({}, 0, { nodeSelector: { "example.com/none": "none" } }) };
  const pod = await create("/api/v1/namespaces/demo/pods", { ...single, metadata: { name: "asked-about" } });
  const body = JSON.stringify({ Pod: pod, Nodes: null, NodeNames: nodes.map(({ metadata }) => metadata.name) });
  const line = new PlainAgent({ keepAlive: true, maxSockets: 1 });
  const filter = async () => {
    const started = process.hrtime.bigint();
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body };
    const answer = await call(plainRequest, line, `http://${cluster.extender}/v1/sync/filter`, options);
    const took = Number(process.hrtime.bigint() - started) / 1e6;
    return { took, answer };
  };
  await until("filter to offer all nodes", 60, async () => {
    const { answer } = await filter();
    const { NodeNames: names, nodenames, Error: problem, error } = JSON.parse(answer.body);
    if ((names ?? nodenames ?? []).length === NODES) return true;
    throw new Error(`${answer.status} ${problem ?? error ?? answer.body.subarray(0, 300)}`);
  });
  const measure = async (into) => {
    const end = Date.now() + Number(seconds) * 1000;
    while (Date.now() < end) {
      const due = Date.now() + 1000 / PACE;
      into.push((await filter()).took);
      await pause(Math.max(0, due - Date.now()));
    }
  };
  const times = { without: [], with: [] };
  const statuses = {};
  await measure([]);
  for (let round = 0; round < Number(rounds); round += 1) {
    for (const kind of round % 2 === 0 ? ["without", "with"] : ["with", "without"]) {
      const own = [];
      let worker;
      if (kind === "with") {
        worker = new Worker(new URL(import.meta.url), { workerData: { address: cluster.page } });
        // Every page has asked once.
        await pause(EVERY * 1000);
      }
      await measure(own);
      if (worker) {
        const seen = new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject));
        worker.postMessage("close");
        for (const [status, count] of Object.entries(await seen)) statuses[status] = (statuses[status] ?? 0) + count;
        await worker.terminate();
      }
      times[kind].push(...own);
      const { p50, p99 } = percentiles(own);
      say(`round ${round + 1}, ${kind} ${PAGES} pages: ${own.length} calls, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`);
    }
  }
  const [without, beside] = [percentiles(times.without), percentiles(times.with)];
  const ratio = beside.p99 / without.p99;
  say(`answers to the pages: ${Object.entries(statuses).map(([status, count]) => `${count} × ${status}`).join(", ")}`);
  say(
    `filter at ${NODES} nodes: p99 ${without.p99.toFixed(2)} ms without pages (${times.without.length} calls), ` +
      `${beside.p99.toFixed(2)} ms with ${PAGES} (${times.with.length} calls): × ${ratio.toFixed(3)}; ` +
      `p50 ${without.p50.toFixed(2)} and ${beside.p50.toFixed(2)} ms`,
  );
  if (ratio > MOST_SLOWER) failures.push(`with ${PAGES} pages the p99 of filter is ${((ratio - 1) * 100).toFixed(1)} % larger`);
  const refused = Object.entries(statuses).filter(([status]) => status !== "200" && status !== "304");
  if (refused.length > 0) failures.push(`pages were refused: ${refused.map(([status, count]) => `${count} × ${status}`).join(", ")}`);

  await cluster.stop();
  for (const failure of failures) console.error(`page-load: ${failure}`);
  process.exit(failures.length === 0 ? 0 : 1);
}

await (isMainThread ? main() : pages());
