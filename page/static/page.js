// Renews the parts of a page that change, and sends forms when a choice is made. Every page works
// without it: then nothing renews itself, and forms have buttons.
"use strict";

const live = document.getElementById("live");
const toggle = document.getElementById("toggle");
let source = null;

function renew(html) {
  const selected = document.getSelection();
  if (selected && !selected.isCollapsed && live.contains(selected.anchorNode)) return;
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  const href = focused && focused.getAttribute("href");
  const id = focused && focused.id;
  const scrolled = [...live.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  live.innerHTML = html; // rendered and escaped by the server
  [...live.querySelectorAll(".scroll")].forEach((each, n) => { each.scrollLeft = scrolled[n] || 0; });
  const again = id ? document.getElementById(id)
    : href && [...live.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
  if (again) again.focus({ preventScroll: true });
}

function show(state) {
  toggle.textContent = { live: "Live", paused: "Paused", lost: "Not connected" }[state];
  toggle.dataset.state = state;
  toggle.setAttribute("aria-pressed", String(state !== "paused"));
}

function connect() {
  source = new EventSource("/live" + location.pathname + location.search);
  source.onopen = () => show("live");
  source.onmessage = (event) => renew(JSON.parse(event.data));
  source.onerror = () => show("lost");
}

if (live && toggle) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    if (source) { source.close(); source = null; show("paused"); } else { connect(); }
  });
  connect();
}

for (const slider of document.querySelectorAll("input[type=range]")) {
  const number = document.getElementById(slider.dataset.shows);
  slider.addEventListener("input", () => { number.value = slider.value; });
  slider.addEventListener("change", () => slider.form.requestSubmit());
  number.addEventListener("input", () => { slider.value = number.value; });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const wanted = { "/": "[data-key=search]", "j": "[data-key=next]", "k": "[data-key=previous]" }[event.key];
  const found = wanted && document.querySelector(wanted);
  if (!found) return;
  event.preventDefault();
  if (found.matches("input")) found.focus(); else found.click();
});
