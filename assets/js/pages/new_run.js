/* New run: files chosen or dropped go straight to the studio's disk, the studio's answer to Start is followed, and
   Ctrl+Enter starts. Fields and views are Gradio's; panels, buttons within boards and the slider have files of their
   own. */

import { advanced } from "./new_run/advanced.js";
import { modelList } from "./new_run/model_list.js";
import { notices } from "../notice.js";
import { panels } from "./new_run/panels.js";
import { forgiven, gathered, heard, send, tell, type } from "./new_run/sending.js";
import { slider } from "./new_run/slider.js";
import { table } from "./new_run/table.js";

/* Gradio closes its event stream when the page is about to be left, takes that for a lost connection, and two seconds
   later loads New run again: in place of the next page, if that is slow to come. The browser closes the stream itself. */
addEventListener("beforeunload", (event) => event.stopImmediatePropagation(), true);

const chosen = (id) => type("data-upload", id);
const joined = (id) => tell("mix", { mix: "add", upload: id }, gathered(document.querySelector('[data-form="mix"]')));

/** One file is the data; several are sent one after another, and then mixed. */
function dropped(zone, [file, ...rest], ids = []) {
  const sent = (id) => (rest.length ? dropped(zone, rest, [...ids, id]) : tell("source", { mix: "make", uploads: [...ids, id] }));
  send(zone, file, rest.length || ids.length ? sent : chosen);
}

document.addEventListener("change", (event) => {
  const { target } = event;
  for (const zone of target.closest("#block-data")?.querySelectorAll("[data-fault]") ?? []) forgiven(zone);
  if (!["data-file", "mix-file"].includes(target.id) || !target.files.length) return;
  const zone = target.closest("[data-busy]");
  if (target.id === "data-file") dropped(zone, [...target.files]);
  else send(zone, target.files[0], joined);
  target.value = "";
});

/* A file dropped anywhere on the page is meant for the zone, before it is drawn too; the browser must not open it
   instead. */
const held = [];
const zoneOf = () => document.querySelector("[data-drop]");

function taken() {
  if (held.length && zoneOf()) dropped(zoneOf(), held.splice(0));
}

for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    zoneOf()?.toggleAttribute("data-over", name === "dragover");
    if (name === "drop") held.push(...event.dataTransfer.files);
    taken();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const start = document.getElementById("start");
  if (start && !start.disabled) start.click();
});

/* Gradio gives each choice of a radio group a name of its own; the arrow keys and screen readers want one. */
function oneName() {
  for (const group of document.querySelectorAll("fieldset.block[id]"))
    for (const choice of group.querySelectorAll('input[type="radio"]')) if (choice.name !== group.id) choice.name = group.id;
}

/* A list of choices scrolls, and so would be a stop of the Tab key of its own, which ends nowhere when it closes. */
function noStop() {
  for (const list of document.querySelectorAll('ul[role="listbox"]:not([tabindex])')) list.tabIndex = -1;
}

/* The outline stands until Gradio has drawn the same page with its fields: each kind of field comes in a file of its own,
   and what came later would move what is there. */
const DRAWN = ["#machine h1", "#start", "#data-sample input", "#data-typed input", "#more-sources button", "#data-tabs button",
  "#block-train input[type=radio]", "#block-train input[type=number]"];

function takeOver() {
  const outline = document.querySelector("main[data-outline]");
  if (outline && DRAWN.every((part) => document.querySelector(`gradio-app ${part}`))) outline.remove();
}

const [panelsMoved, sliderMoved, modelListMoved, tableMoved] = [panels(), slider(), modelList(), table()];

/* Gradio changes a board in place where it can: what was opened or chosen there loses its attribute, and what the
   board tells scripts may be all that is new. */
const TOLD = ["data-goto", "data-limit", "data-state", "data-stops", "data-active", "open", "aria-selected"];

new MutationObserver(() => {
  takeOver();
  taken();
  heard();
  oneName();
  noStop();
  panelsMoved();
  sliderMoved();
  modelListMoved();
  tableMoved();
  const link = document.querySelector("a[data-goto]:not([data-gone])");
  if (!link) return;
  link.setAttribute("data-gone", "");
  location.assign(link.href);
}).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: TOLD });
notices();
advanced();
