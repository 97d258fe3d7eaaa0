// What every look at the page in a real browser does, whether a recording is shown (`page-check.mjs`) or a cluster (`page-live.mjs`).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The packages are where the Makefile put them and not beside this file.
const require = createRequire(join(process.env.PAGE_MODULES ?? process.cwd(), "package.json"));
export const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const failures = [];
export const check = (holds, what) => {
  if (!holds) failures.push(what);
};

/** Says what failed and decides the exit code. */
export function verdict(sentence) {
  for (const failure of failures) console.error(`page: ${failure}`);
  console.log(failures.length === 0 ? `page: ${sentence}` : `page: ${failures.length} failures`);
  process.exitCode = failures.length === 0 ? 0 : 1;
}

/** A page that writes down whatever a person would find on the console, and whom it talks to; nobody else is reached. */
export async function open(browser, address, options, target = "") {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const seen = { messages: [], elsewhere: [], answers: [], loads: 0 };
  await context.route(
    (url) => !url.href.startsWith(address),
    (route) => {
      seen.elsewhere.push(route.request().url());
      return route.abort();
    },
  );
  page.on("console", (message) => seen.messages.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => seen.messages.push(`error: ${error.message}`));
  page.on("response", (response) => {
    if (response.url() === `${address}main`) seen.answers.push(response.status());
  });
  page.on("load", () => (seen.loads += 1));
  if (options.javaScriptEnabled !== false) {
    await page.addInitScript(() => {
      window.reports = [];
      document.addEventListener("securitypolicyviolation", (event) =>
        window.reports.push(`${event.effectiveDirective} ${event.blockedURI}`),
      );
    });
  }
  await page.goto(`${address}${target}`);
  return { context, page, seen };
}

/** Nothing that axe-core finds, and no sideways scrolling of the whole. */
export async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, nodes } of violations) check(false, `${where}: axe-core ${id}: ${nodes.map((node) => node.target)}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(wide <= 0, `${where}: the page scrolls sideways by ${wide} px`);
}

/** Where a page begins, with nothing in focus. */
export function top(page) {
  return page.evaluate(() => {
    document.activeElement.blur();
    window.scrollTo(0, 0);
  });
}

/** Everything that can be reached is reached by Tab, and is seen when it has the focus; what an update takes away meanwhile does not count. */
export async function keyboard(page, where) {
  await top(page);
  const wanted = await page.evaluate(() => {
    window.goals = "a[href], summary, button, input, select, [tabindex='0']";
    window.wanted = [...document.querySelectorAll(window.goals)];
    window.reached = new Set();
    window.hidden = new Map();
    return window.wanted.length;
  });
  for (let presses = 0; presses < wanted + 20; presses += 1) {
    await page.keyboard.press("Tab");
    const done = await page.evaluate(() => {
      const at = document.activeElement;
      if (!at.matches(window.goals)) return false;
      const box = at.getBoundingClientRect();
      const ring = getComputedStyle(at).outlineStyle !== "none";
      if (box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.left < innerWidth && ring) window.hidden.delete(at);
      else if (!window.reached.has(at)) window.hidden.set(at, at.outerHTML.slice(0, 80));
      window.reached.add(at);
      return window.wanted.every((goal) => window.reached.has(goal) || !goal.isConnected);
    });
    if (done) break;
  }
  const [missed, unseen] = await page.evaluate(() => [
    window.wanted.filter((goal) => goal.isConnected && !window.reached.has(goal)).map((goal) => goal.outerHTML.slice(0, 80)),
    [...window.hidden.entries()].filter(([goal]) => goal.isConnected).map(([, text]) => text),
  ]);
  check(missed.length === 0, `${where}: the keyboard does not reach ${missed.join(" ")}`);
  check(unseen.length === 0, `${where}: with the focus and not to be seen: ${unseen.join(" ")}`);
}

/** Nothing on the console, nothing asked of others, nothing against the policy. */
export async function quiet(page, seen, where) {
  check(seen.messages.length === 0, `${where}: on the console: ${seen.messages.join("; ")}`);
  check(seen.elsewhere.length === 0, `${where}: asked elsewhere: ${seen.elsewhere.join(" ")}`);
  const reports = await page.evaluate(() => window.reports);
  check(reports.length === 0, `${where}: against the policy: ${reports.join("; ")}`);
}
