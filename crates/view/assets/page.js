// States when the page no longer follows the server, and keeps the keyboard where it is. How the page updates
// itself is in the attributes of <main>.
(() => {
  const notice = document.getElementById("stalled");
  let last = new Date();

  // The text stays the same until there is an answer again, so that it is read out once.
  const stalled = (why) => {
    if (!notice.hidden) return;
    notice.hidden = false;
    notice.textContent = `Not current since ${last.toISOString().slice(0, 19)}Z: ${why}`;
  };

  document.addEventListener("htmx:after:request", (event) => {
    const { status } = event.detail.ctx.response;
    if (status !== 200 && status !== 304) return stalled(`the server answered ${status}`);
    last = new Date();
    notice.hidden = true;
    notice.textContent = "";
  });
  document.addEventListener("htmx:error", () => stalled("the server did not answer"));

  // Where a browser cannot move an element without taking it out first, the focus gets lost on the way.
  let focused = null;
  document.addEventListener("htmx:before:swap", () => {
    focused = document.activeElement;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  });
})();
