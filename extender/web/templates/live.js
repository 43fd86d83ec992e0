// Keeps a page up to date: reads it again every few seconds, and replaces the regions that have changed.
"use strict";

const EVERY_MS = 5000;
const AT_MOST_MS = 60000;

let wait = EVERY_MS;
let tag = null;
let paused = false;
let timer = null;

const said = document.createElement("span");
said.setAttribute("role", "status");
const button = document.createElement("button");
button.type = "button";
button.addEventListener("click", () => {
  paused = !paused;
  show();
  clearTimeout(timer);
  if (!paused) refresh();
});
document.getElementById("liveliness").append(said, button);

// Only a change is said: a screen reader would read each word aloud.
function show(problem = "") {
  const words = problem || (paused ? "stands still" : "live");
  if (said.textContent !== words) said.textContent = words;
  said.classList.toggle("stale", problem !== "");
  button.textContent = paused ? "Go on" : "Pause";
}

async function refresh() {
  try {
    if (!document.hidden) await read();
    wait = EVERY_MS;
    show();
  } catch (error) {
    wait = Math.min(2 * wait, AT_MOST_MS);
    show(`not up to date: ${error.message}`);
  }
  // A little earlier or later each time, so that many who watch do not come at once.
  if (!paused) timer = setTimeout(refresh, wait * (0.8 + 0.4 * Math.random()));
}

async function read() {
  const response = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
  if (response.status === 304) return;
  if (!response.ok && response.status !== 404) throw new Error(`the extender answers ${response.status}`);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  tag = response.headers.get("ETag");
  if (response.status === 404) throw new Error("it is gone");
  for (const old of document.querySelectorAll("[data-live]")) {
    if (old.querySelector("[data-ring]:hover, [data-ring]:focus")) continue; // somebody is looking at a ring
    const region = fresh.getElementById(old.id);
    if (region && region.innerHTML !== old.innerHTML) replace(old, region);
  }
}

// Whoever stands on a link with the keyboard still stands there afterwards, and a table that was scrolled stays scrolled.
function replace(old, region) {
  const active = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const scrolled = [...old.querySelectorAll(".card")].map((card) => card.scrollLeft);
  old.replaceChildren(...region.childNodes);
  old.querySelectorAll(".card").forEach((card, at) => { card.scrollLeft = scrolled[at] ?? 0; });
  if (active) [...old.querySelectorAll("a")].find((link) => link.getAttribute("href") === active)?.focus({ preventScroll: true });
}

// The ring of the pod under the pointer, or of the one that the keyboard is on.
function ring(event) {
  const picture = document.querySelector("object.picture");
  const link = event.target instanceof Element ? event.target.closest("[data-ring]") : null;
  if (!picture || !link) return;
  picture.dataset.usual ??= picture.data;
  const wanted = event.type === "pointerover" || event.type === "focusin" ? link.dataset.ring : picture.dataset.usual;
  if (picture.getAttribute("data") !== wanted) picture.setAttribute("data", wanted);
}
for (const kind of ["pointerover", "pointerout", "focusin", "focusout"]) document.addEventListener(kind, ring);

show();
timer = setTimeout(refresh, EVERY_MS);
