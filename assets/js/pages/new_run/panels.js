/* Boards are replaced with every answer. Open panels, open details and the keyboard's place are kept. A button within a
   board names its command by data-do, which one listener sends. */

import { gathered, tell } from "./sending.js";

const FIRST = "rows";
const TOOLS = "button:not(:disabled), summary";
const BOARDS = [
  "data-report", "data-tabs", "data-doctor", "lengths-figures", "mix-form", "hub-form",
  "source-outcome", "machine", "model-about", "summary", "summary-more", "summary-probe", "preset-goal", "draft-line",
].map((id) => `#${id}`).join();

/** Listens once; what comes back is to be called when the page has changed. */
export function panels() {
  const opened = new Set();
  let held = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do], button[data-panel-tab], button[data-panel]");
    if (!button) return;
    if (button.dataset.panelTab) show(button.dataset.panelTab, false);
    if (button.dataset.panel) show(button.dataset.panel, true);
    if (button.dataset.do)
      tell(button.dataset.do, JSON.parse(button.dataset.value || "{}"), gathered(button.closest("[data-form]")));
  });

  document.addEventListener("input", ({ target }) => {
    if (target.name?.startsWith("weight.")) shares(target.closest("ol"));
  });

  // Told by the click, not by the toggle that follows it: the board may be replaced between them.
  document.addEventListener("click", ({ target }) => {
    const details = target.closest?.("summary")?.parentElement;
    if (details?.dataset.keep) opened[details.open ? "delete" : "add"](details.dataset.keep);
  });

  document.addEventListener("focusin", (event) => {
    held = place(event.target);
  });
  document.addEventListener("focusout", (event) => {
    if (event.relatedTarget) held = null;
  });
  document.addEventListener("pointerdown", () => (held = null));
  document.addEventListener("keydown", arrows);

  return () => {
    for (const details of document.querySelectorAll("details[data-keep]"))
      if (!details.open && opened.has(details.dataset.keep)) details.open = true;
    marked();
    if (held && document.activeElement === document.body) held = back(held);
  };
}

/** The shares that the typed weights give: a part's rows of all rows; nothing where not all are known. */
function shares(parts) {
  const lines = [...parts.children];
  const rows = lines.map((line) => line.dataset.rows * line.querySelector('[name^="weight."]').value);
  const whole = rows.every((count) => count > 0) ? rows.reduce((sum, count) => sum + count, 0) : 0;
  lines.forEach((line, index) => (line.querySelector(".share").textContent = whole ? `${Math.round((100 * rows[index]) / whole)}%` : ""));
}

/** Where the keyboard is within a board, in terms that hold when the board is replaced. */
function place(element) {
  const board = element.closest(BOARDS);
  if (!board) return null;
  const same = (other) => other.dataset.value === element.dataset.value && other.textContent === element.textContent;
  const kind = element.localName + [...element.classList].filter((name) => !name.startsWith("svelte")).map((name) => `.${name}`).join("");
  const index = [...board.querySelectorAll(kind)].indexOf(element);
  return { board: board.id, kind, same, index };
}

/** The keyboard goes back to the same button, else to the one in its place, else to the board. */
function back(was) {
  const board = document.getElementById(was.board);
  if (!board) return was;
  const alike = [...board.querySelectorAll(was.kind)];
  const target = alike.find(was.same) ?? alike[was.index] ?? board.querySelector("button:not(:disabled), [tabindex]");
  if (!target || target.disabled) return was;
  target.focus({ preventScroll: true });
  return was;
}

function show(name, focus) {
  document.getElementById("block-data")?.setAttribute("data-panel", name);
  marked();
  if (focus) document.getElementById(`tab-${name}`)?.focus();
}

/** Tabs say which panel is open; only that one is a stop of the Tab key. */
function marked() {
  const block = document.getElementById("block-data");
  if (!block) return;
  if (!block.dataset.panel) block.setAttribute("data-panel", FIRST);
  for (const tab of block.querySelectorAll("[data-panel-tab]")) {
    const own = tab.dataset.panelTab === block.dataset.panel;
    if (tab.getAttribute("aria-selected") === String(own)) continue;
    tab.setAttribute("aria-selected", String(own));
    tab.tabIndex = own ? 0 : -1;
  }
  for (const name of ["rows", "lengths", "doctor", "reading"]) {
    const panel = document.getElementById(`panel-${name}`);
    if (!panel || panel.getAttribute("role") === "tabpanel") continue;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${name}`);
  }
  const tools = document.querySelector(".rows-tools");
  if (tools && !tools.querySelector(`:is(${TOOLS})[tabindex="0"]`)) only(tools, tools.querySelector(TOOLS));
}

function only(group, chosen) {
  for (const button of group.querySelectorAll("button, summary")) button.tabIndex = button === chosen ? 0 : -1;
}

/** The arrow keys move within the tabs, the table's tools and the cards, which are one stop of the Tab key each. */
function arrows(event) {
  const group = event.target.closest?.('[role="tablist"], [role="toolbar"]');
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!group || !step || !event.target.matches(TOOLS)) return;
  const buttons = [...group.querySelectorAll(TOOLS)];
  const next = buttons[(buttons.indexOf(event.target) + step + buttons.length) % buttons.length];
  if (!next) return;
  event.preventDefault();
  if (next.dataset.panelTab) show(next.dataset.panelTab, true);
  else {
    only(group, next);
    next.focus();
  }
}
