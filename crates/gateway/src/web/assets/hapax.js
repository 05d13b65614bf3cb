// Keeps an open page true. Everything works without it; with it nothing moves under the reader's eyes.
const LIVE = { headers: { "hapax-live": "1" }, credentials: "same-origin", redirect: "manual" };
const POLL_MS = 10_000;
const SOON_MS = 150;
const REST_MS = 1_500;

// Times as people say them.
function ago(ms) {
  const age = Date.now() - ms, abs = Math.abs(age);
  if (abs < 2_000) return "now";
  const [size, unit] = abs < 60_000 ? [1_000, "s"] : abs < 3_600_000 ? [60_000, "min"] : abs < 86_400_000 ? [3_600_000, "h"] : [86_400_000, "d"];
  const words = `${Math.floor(abs / size)} ${unit}`;
  return age < 0 ? `in ${words}` : `${words} ago`;
}
function tellTimes() {
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const words = ago(Number(time.dataset.ms));
    if (time.textContent !== words) time.textContent = words;
    time.title = exact.format(Number(time.dataset.ms));
  }
}
// Days are told by the reader's own clock, by the server too.
const exact = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "long" });
document.cookie = `hapax_zone=${-new Date().getTimezoneOffset()}; Path=/; Max-Age=604800; SameSite=Strict${location.protocol === "https:" ? "; Secure" : ""}`;

// On a phone the menu is a bar that is swiped: where one is, is in sight.
document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Live regions: the page asks for itself once more and takes over what changed.
let looking = false, again = false, lastLook = 0, timer = null;
const regions = () => document.querySelectorAll("[data-live]");
const isBusy = (node) => node.contains(document.activeElement) && document.activeElement !== document.body
  || node.querySelector("details[open]") !== null || hasSelection(node);
function hasSelection(node) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.rangeCount > 0 && node.contains(selection.getRangeAt(0).commonAncestorContainer);
}

async function look() {
  if (looking) { again = true; return; }
  looking = true;
  lastLook = Date.now();
  try {
    const response = await fetch(location.href, LIVE);
    if (response.type === "opaqueredirect") { location.reload(); return; }
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const region of regions()) {
      const next = region.id && fresh.getElementById(region.id);
      if (next) (region.dataset.live === "list" ? takeList : takeWhole)(region, next);
    }
    showCopies();
    tellTimes();
    document.dispatchEvent(new CustomEvent("hapax:looked"));
  } catch {
    // The server may be restarting; the stream says when it is back.
  } finally {
    looking = false;
    if (again) { again = false; soon(); }
  }
}
function soon() {
  if (timer !== null || document.hidden || regions().length === 0) return;
  timer = setTimeout(() => { timer = null; look(); }, Math.max(SOON_MS, REST_MS - (Date.now() - lastLook)));
}
function takeWhole(region, next) {
  if (region.innerHTML === next.innerHTML || isBusy(region)) return;
  // Parts that have a name are taken one by one, so that what did not change stays as it is.
  region.replaceChildren(...document.adoptNode(next).childNodes);
}

// Rows that are there already change in place. New ones come in at once when the reader is at the top, and else wait behind a button.
let waiting = null;
function takeList(region, next) {
  const body = region.querySelector("tbody"), fresh = next.querySelector("tbody");
  if (!body || !fresh) { takeWhole(region, next); return; }
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const arrived = [];
  for (const row of [...fresh.children]) {
    const old = known.get(row.dataset.key);
    if (!old) arrived.push(document.adoptNode(row));
    else if (plain(old) !== plain(row) && !isBusy(old)) old.replaceWith(document.adoptNode(row));
  }
  if (arrived.length === 0) { if (waiting) waiting = null, announce(0); return; }
  const put = () => { for (const row of arrived.reverse()) { row.classList.add("fresh"); body.prepend(row); } while (body.children.length > 200) body.lastElementChild.remove(); };
  if (scrollY < 8 && !body.matches(":hover") && !isBusy(body)) { put(); waiting = null; announce(0); }
  else { waiting = () => { put(); scrollTo({ top: 0 }); }; announce(arrived.length); }
}
const plain = (row) => { const copy = row.cloneNode(true); copy.classList.remove("fresh"); copy.querySelectorAll("time").forEach((time) => time.replaceWith(time.dateTime)); return copy.innerHTML; };
function announce(count) {
  let button = document.getElementById("live-new");
  if (count === 0) { button?.remove(); return; }
  if (!button) {
    button = Object.assign(document.createElement("button"), { id: "live-new", type: "button" });
    button.addEventListener("click", () => { waiting?.(); waiting = null; button.remove(); });
    document.body.append(button);
  }
  button.textContent = count === 1 ? "1 new" : `${count} new`;
}

// The stream is open only while somebody looks: browsers allow few connections.
let source = null;
function listen() {
  const state = document.getElementById("live-state");
  if (source || document.hidden || !state?.dataset.source || !window.EventSource) return;
  source = new EventSource(state.dataset.source);
  source.addEventListener("open", () => { if (!state.hidden) { state.hidden = true; look(); } });
  source.addEventListener("news", (event) => { document.dispatchEvent(new CustomEvent("hapax:news", { detail: event.data })); soon(); });
  source.addEventListener("error", () => {
    state.hidden = false;
    if (source?.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 3_000); look(); }
  });
}
function hush() { source?.close(); source = null; }
document.addEventListener("visibilitychange", () => { if (document.hidden) hush(); else { listen(); soon(); } });
addEventListener("pagehide", hush);
addEventListener("pageshow", (event) => { if (event.persisted) { listen(); soon(); } });

// Copying.
function showCopies() { if (navigator.clipboard) for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false; }
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) {
    // A fold that asks something closes when one goes on elsewhere.
    for (const open of document.querySelectorAll("details.confirm[open], details.who[open]")) if (!open.contains(event.target)) open.open = false;
    return;
  }
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1_200);
});

// A form is sent once, however often its button is pressed. The box of a chat sees to that by itself.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || form.dataset.compose) return;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = "1";
  // Stopped, or gone back to: it may be sent again.
  setTimeout(() => { delete form.dataset.sent; }, 3_000);
});

// Keys: `/` to the filter, `g` and a letter to a page, `n`, `j` and `k` along lists. Not while somebody writes.
let going = false;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const open of document.querySelectorAll("details.confirm[open], details.who[open]")) { open.open = false; open.querySelector("summary").focus(); }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, [contenteditable]")) return;
  const pick = (name) => document.querySelector(`[${name}="${CSS.escape(event.key)}"]`);
  const target = going ? pick("data-key-go") : pick("data-key");
  going = !going && event.key === "g";
  if (!target || !/^[a-z/]$/.test(event.key)) return;
  event.preventDefault();
  if (target.matches("input")) target.focus(); else target.click();
});

tellTimes();
showCopies();
listen();
setInterval(tellTimes, 5_000);
setInterval(() => { if (!document.hidden && regions().length > 0 && Date.now() - lastLook >= POLL_MS) look(); }, 1_000);

// The box of a chat. What is written has a name from its first letter on, kept with this tab: double clicks, going back, reloading and a copy of
// the tab send it once. Sent texts are remembered by their name, so that one that is changed afterwards gets a new one.
const compose = document.querySelector("form[data-compose]");
if (compose) {
  const text = compose.elements.text, id = compose.elements.request_id, place = `hapax:${compose.dataset.compose}`;
  const kept = () => { try { return JSON.parse(sessionStorage.getItem(place)) ?? {}; } catch { return {}; } };
  const keep = (draft) => { try { sessionStorage.setItem(place, JSON.stringify(draft)); } catch { /* Then the name lives as long as the page. */ } };
  const name = () => `web-${crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  const arrived = new URLSearchParams(location.search).get("sent");
  const done = () => { try { return JSON.parse(sessionStorage.getItem(`${place}:sent`)) ?? []; } catch { return []; } };
  const sent = (one) => { try { sessionStorage.setItem(`${place}:sent`, JSON.stringify([one, ...done()].slice(0, 20))); } catch { /* As above. */ } };
  let draft = kept();
  const resume = () => {
    draft = kept();
    // Sent, and the server has it: the box is empty again.
    if (arrived && draft.id === arrived) { sent({ id: arrived, text: draft.sent }); draft = {}; keep(draft); text.value = ""; }
    // The server has another text under this name.
    else if (compose.dataset.refused) { draft = { id: name(), text: text.value }; keep(draft); }
    // Gone back to a box that was sent: unchanged, it is the same message.
    else if (!draft.id && text.value) { const before = done().find((one) => one.id === id.value && one.text === text.value); if (before) draft = { ...before, sent: before.text }; }
    if (draft.id) { id.value = draft.id; if (!text.value.trim() && draft.text) text.value = draft.text; }
    compose.classList.remove("sending");
  };
  const typed = () => {
    if (!text.value.trim() && draft.sent === undefined) { draft = {}; keep(draft); return; }
    if (!draft.id || (draft.sent !== undefined && draft.sent !== text.value)) draft = { id: name() };
    draft.text = text.value;
    id.value = draft.id;
    keep(draft);
  };
  resume();
  addEventListener("pageshow", (event) => { if (event.persisted) resume(); });
  text.addEventListener("input", typed);
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    compose.requestSubmit();
  });
  compose.addEventListener("submit", (event) => {
    if (!text.value.trim()) { event.preventDefault(); return; }
    typed();
    draft = { ...draft, sent: text.value };
    keep(draft);
    compose.classList.add("sending");
  });
  if (arrived) history.replaceState(null, "", location.pathname);
}

// A chat is read from its end, and stays there while the reader does.
const chat = document.getElementById("chat");
const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
if (chat && !location.hash.startsWith("#msg_")) {
  let stay = true;
  const toEnd = () => { if (stay) scrollTo({ top: document.documentElement.scrollHeight }); };
  toEnd();
  addEventListener("scroll", () => { stay = atEnd(); }, { passive: true });
  document.addEventListener("hapax:looked", toEnd);
}
// What is on its way out is looked after sooner: no webhook tells that it has left.
const pending = () => { if (document.querySelector("[data-pending]")) setTimeout(soon, 1_000); };
pending();
document.addEventListener("hapax:looked", pending);
