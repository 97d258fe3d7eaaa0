// Looks at the page of `muster-tour` in a real browser: `make test-page` installs what it needs and runs it.
//
//   node page-check.mjs MUSTER_TOUR CHROMIUM [FOLDER]
//
// With a folder, screenshots go there; `readme.png` among them is the one in README.md, before pngquant.
//
// At two widths and in both schemes: no message on the console, no report of the policy, no request elsewhere, nothing
// that axe-core finds, everything reachable by keyboard, no sideways scrolling of the whole. Then what an update keeps,
// that an unchanged state changes nothing, what is shown once the server has gone, and the page without scripts.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { accessible, check, chromium, keyboard, open, quiet, top, verdict } from "./page-browser.mjs";

const [tour, executablePath, shots] = process.argv.slice(2);

/** Starts the server; ends with the address it printed. */
async function serve(...args) {
  const server = spawn(tour, ["page", "--port", "0", ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(server.stdout, "data");
  return { server, address: String(line).match(/http:\/\/[^ /]+\//)[0] };
}

/** Waits until the page has asked so often and is done with the answers before the last one. */
async function asks(page, times) {
  for (let asked = 0; asked < times; asked += 1) await page.waitForResponse((response) => response.url().endsWith("/main"));
}

async function looks(browser, address, width, colorScheme) {
  const where = `${width} px, ${colorScheme}`;
  const { context, page, seen } = await open(browser, address, { viewport: { width, height: 900 }, colorScheme });
  await asks(page, 2);
  check(seen.answers.length > 0 && seen.answers.every((status) => status === 304), `${where}: asked ${seen.answers}`);
  await page.locator("summary").first().click();
  await accessible(page, where);
  await keyboard(page, where);
  if (shots) {
    await top(page);
    await page.screenshot({ path: join(shots, `page-${width}-${colorScheme}.png`), fullPage: true });
  }
  await quiet(page, seen, where);
  await context.close();
}

/** What a person did to the page must outlive an update, and an unchanged state must not touch it. */
async function updates(browser, address, server) {
  const { context, page, seen } = await open(browser, address, { viewport: { width: 360, height: 700 } });
  await page.locator("summary").first().click();
  const before = await page.evaluate(() => {
    const link = [...document.querySelectorAll("article h3 a")].at(-1);
    link.focus();
    window.wide = [...document.querySelectorAll(".scroll")].find((part) => part.scrollWidth > part.clientWidth + 20);
    window.wide.scrollLeft = 20;
    window.link = link;
    window.changes = 0;
    new MutationObserver((all) => {
      window.changes += all.filter(({ type, attributeName }) => type !== "attributes" || attributeName !== "class").length;
    }).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true, attributes: true });
    return [scrollY, window.wide.scrollLeft];
  });
  check(before[0] > 500 && before[1] > 0, `scrolled by ${before} before the update`);
  await asks(page, 2);
  check((await page.evaluate(() => window.changes)) === 0, "an unchanged state changes the page");

  // A gang more in front of all others, and hostile text in it.
  const hostile = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&gt;&lt;svg onload=alert(1)&gt;";
  const asked = [];
  await page.route(`${address}main`, async (route) => {
    const { "if-none-match": known, ...headers } = route.request().headers();
    asked.push(known);
    const response = await route.fetch({ headers });
    const body = (await response.text())
      .replace("<article ", `<article id="gang-new"><h3><a href="#gang-new">new ${hostile}</a></h3></article><article `)
      .replace(/role="status">[^<]*/, 'role="status">9 gangs of 9 wait.')
      .replace(/<title>[^<]*/, "<title>Muster: 9 waiting");
    await route.fulfill({ response, body });
  });
  await page.locator("#gang-new").waitFor();
  await asks(page, 1);
  const after = await page.evaluate(() => ({
    focus: document.activeElement === window.link,
    open: document.querySelector("details").open,
    sideways: window.wide.scrollLeft,
    title: document.title,
    status: document.querySelector("[role=status]").textContent,
    scripts: document.querySelectorAll("main script, main svg[onload]").length,
    top: window.link.getBoundingClientRect().top >= 0 && window.link.getBoundingClientRect().top < innerHeight,
  }));
  check(after.focus && after.open && after.sideways === before[1] && after.top, `an update lost: ${JSON.stringify(after)}`);
  check(after.title === "Muster: 9 waiting" && after.status === "9 gangs of 9 wait.", `not updated: ${after.title}`);
  check(after.scripts === 0, "foreign text became an element");
  check(asked.length > 0 && asked.every((known) => /^"[0-9a-f]+"$/.test(known)), `asked with ${asked}`);
  await page.unroute(`${address}main`);

  check(seen.messages.length === 0, `on the console while updating: ${seen.messages.join("; ")}`);
  await page.route(`${address}main`, (route) => route.fulfill({ status: 500, body: "<p>broken</p>" }));
  await page.locator("#stalled:not([hidden])").waitFor();
  check((await page.locator("main section").count()) === 6, "an answer with an error is shown as the state");
  await page.unroute(`${address}main`);
  await page.locator("#stalled[hidden]").waitFor({ state: "attached" });
  server.kill();
  await page.locator("#stalled:not([hidden])").waitFor();
  const notice = await page.locator("#stalled").textContent();
  check(/^Not current since \S+Z: the server did not answer$/.test(notice), `the server has gone: ${notice}`);
  await context.close();
}

async function plain(browser, address) {
  const { context, page } = await open(browser, address, { javaScriptEnabled: false });
  check((await page.locator("main section").count()) === 6, "without scripts a section is missing");
  check((await page.locator("noscript meta[http-equiv=refresh]").count()) === 1, "without scripts nothing refreshes");
  await page.getByRole("link", { name: "Stop refreshing" }).click();
  check((await page.locator("meta[http-equiv=refresh], script").count()) === 0, "the still page refreshes");
  check((await page.locator("main section").count()) === 6, "a section of the still page is missing");
  await context.close();
}

/** The recording as `make tour` shows it. */
async function readme(browser) {
  const { server, address } = await serve();
  try {
    const { context, page } = await open(browser, address, { viewport: { width: 1000, height: 1080 } });
    await page.screenshot({ path: join(shots, "readme.png") });
    await context.close();
  } finally {
    server.kill();
  }
}

const { server, address } = await serve("--refresh", "1");
const browser = await chromium.launch({ executablePath });
try {
  if (shots) await readme(browser);
  for (const width of [360, 1920]) {
    for (const scheme of ["light", "dark"]) await looks(browser, address, width, scheme);
  }
  await plain(browser, address);
  await updates(browser, address, server);
} finally {
  server.kill();
  await browser.close();
}
verdict("as it should be at 360 and 1920 px, in light and dark");
