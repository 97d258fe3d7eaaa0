// Looks at the page of a live demo in a real browser while its four stories happen: `make test-page-live` installs what it needs and runs it.
//
//   node page-live.mjs MUSTER CHROMIUM [FOLDER]
//
// The page is that of the demo's own `muster serve`. At two widths and in both schemes one page each is opened before the first story and
// never loaded again. In every story, once all four show what it is about: nothing that axe-core finds, everything reachable by keyboard, no
// sideways scrolling of the whole; at the end: no message on the console, no report of the policy, no request elsewhere. Without scripts a
// bound gang is there after one reload, and before it where the page refreshes itself. With a folder, screenshots go there.
import { join } from "node:path";
import { demo } from "./demo.mjs";
import { accessible, check, chromium, keyboard, open, quiet, top, verdict } from "./page-browser.mjs";

const [muster, executablePath, shots] = process.argv.slice(2);

/** EC2's minute of booting is a quarter of one: long enough to look at four pages in each story. */
const SPEED = 4;
/** A story takes half a minute; what is shown may be ten seconds old. */
const PATIENCE = 90_000;

/** What the pages show in turn. The conditions run in the page. Of train-3 nothing is to be seen once it is bound: the jobs end at once. */
const MOMENTS = [
  ["1-waits", "train-1 waits for its nodes", () => /demo\/train-1\s*waits/.test(window.shown("gangs"))],
  ["1-bound", "train-1 is bound", () => /demo\/train-1\s*runs: 8 members/.test(window.shown("gangs"))],
  ["2-capacity", "EC2 has no capacity for train-2", () => window.shown("batches").includes("InsufficientInstanceCapacity")],
  ["2-bound", "train-2 is bound", () => /demo\/train-2\s*runs: 8 members/.test(window.shown("gangs"))],
  ["3-violated", "seven of eight instances are rolled back", () => /Violated/.test(window.shown("batches"))],
  ["4-idle", "the nodes are idle or end", () => /Idle|Terminating/.test(window.shown("batches"))],
  ["4-gone", "no node is left", () => window.shown("map").includes("There is no node.")],
  ["5-kept", "train-4, which stays, is bound", () => /demo\/train-4\s*runs: 8 members/.test(window.shown("gangs"))],
];

const began = Date.now();
const say = (what) => console.log(`page: ${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);

const cluster = await demo(muster, { speed: SPEED, keep: true });
const browser = await chromium.launch({ executablePath });
say(`the demo runs, and its page is at ${cluster.page}`);

const views = [];
for (const width of [360, 1920]) {
  for (const colorScheme of ["light", "dark"]) {
    const view = await open(browser, cluster.page, { viewport: { width, height: 900 }, colorScheme });
    await view.page.evaluate(() => {
      window.shown = (id) => document.getElementById(id).textContent;
      window.neverLoadedAgain = true;
    });
    views.push({ ...view, width, colorScheme });
  }
}

/** A page without scripts that was loaded while the gang waits: it stays, and one reload shows the gang bound. */
let still;
/** One without scripts that refreshes itself. */
let refreshing;

async function look(view, name, what) {
  const where = `${what}, ${view.width} px, ${view.colorScheme}`;
  // Once opened it stays so over updates, until there is no map.
  const table = view.page.locator("#map-table:not([open]) > summary");
  if ((await table.count()) > 0) await table.click();
  await accessible(view.page, where);
  await keyboard(view.page, where);
  if (!shots) return;
  await top(view.page);
  await view.page.screenshot({ path: join(shots, `live-${name}-${view.width}-${view.colorScheme}.png`), fullPage: true });
}

for (const [name, what, shown] of MOMENTS) {
  const all = views.map(({ page }) => page.waitForFunction(shown, null, { timeout: PATIENCE }));
  await Promise.all(all).catch(async (error) => {
    const text = await views[0].page.locator("main").innerText();
    throw new Error(`the pages do not show that ${what}: ${error.message}\n${text}\n${cluster.lines.slice(-5).join("\n")}`);
  });
  say(what);
  if (name === "1-waits") {
    still = await open(browser, cluster.page, { javaScriptEnabled: false }, "?still");
    refreshing = await open(browser, cluster.page, { javaScriptEnabled: false });
    for (const { page } of [still, refreshing]) {
      check(/demo\/train-1\s*waits/.test(await page.locator("#gangs").textContent()), "without scripts the gang that waits is not shown");
    }
  }
  if (name === "1-bound") await withoutScripts();
  for (const view of views) await look(view, name, what);
  if (name === "2-bound") {
    for (const { width, colorScheme } of views) await question(width, colorScheme);
  }
  say("  looked at");
}

/** The question below the state, by keyboard, and its answer: a page of its own. */
async function question(width, colorScheme) {
  const view = { ...(await open(browser, cluster.page, { viewport: { width, height: 900 }, colorScheme })), width, colorScheme };
  await view.page.locator("#fit-nodes").focus();
  await view.page.keyboard.press("Control+A");
  await view.page.keyboard.type("2");
  await Promise.all([view.page.waitForURL(/nodes=2/), view.page.keyboard.press("Enter")]);
  check(/2 nodes/.test(await view.page.getByRole("status").textContent()), `${width} px, ${colorScheme}: the question is not answered`);
  await look(view, "fit", "the answer to the question");
  await quiet(view.page, view.seen, `the answer to the question, ${width} px, ${colorScheme}`);
  await view.context.close();
}

async function withoutScripts() {
  const bound = /demo\/train-1\s*runs: 8 members/;
  check(!bound.test(await still.page.locator("#gangs").textContent()), "the still page changed by itself");
  await still.page.reload();
  check(bound.test(await still.page.locator("#gangs").textContent()), "without scripts the bound gang is not shown after a reload");
  await refreshing.page.locator("#gangs", { hasText: bound }).waitFor({ timeout: 20_000 });
  check(refreshing.seen.loads > 1, "without scripts the page did not refresh itself");
  for (const { seen } of [still, refreshing]) {
    check(seen.messages.length === 0, `without scripts: on the console: ${seen.messages.join("; ")}`);
    check(seen.elsewhere.length === 0, `without scripts: asked elsewhere: ${seen.elsewhere.join(" ")}`);
  }
  await Promise.all([still.context.close(), refreshing.context.close()]);
}

for (const { page, seen, width, colorScheme } of views) {
  const where = `${width} px, ${colorScheme}`;
  await quiet(page, seen, where);
  check(await page.evaluate(() => window.neverLoadedAgain === true), `${where}: the page was loaded again`);
  check(seen.loads === 1, `${where}: the page was loaded ${seen.loads} times`);
  check(seen.answers.every((status) => status === 200 || status === 304), `${where}: asked ${seen.answers}`);
  check(seen.answers.includes(200), `${where}: never got a new state`);
}
await cluster.line(/Everything runs until/, 90);
await cluster.stop();
for (const { page } of views) await page.locator("#stalled:not([hidden])").waitFor({ timeout: 20_000 });
say("the server has gone, and the pages say so");
await browser.close();
verdict("of a live demo, as it should be in four stories, at 360 and 1920 px, in light and dark");
