/* The model's field: a combobox over the list of models by fit, which the studio writes anew whenever it is opened.

   What is typed narrows the list down and reaches nobody until it is meant: by Enter, by leaving the field with an id or
   a folder in it, or by choosing from the list. Only then the studio hears of it; Escape brings back what stood there. */

import { say } from "../../dom.js";
import { tell, type } from "./sending.js";

const FIELD = "#model-name input";
const EDGE = 12;
const LEAST = 420;

/** Listens once; what comes back is to be called when the page has changed. */
export function modelList() {
  const state = { was: "", active: "", typed: false, own: false };
  const on = (name, work) => document.addEventListener(name, work, true);

  on("focusin", ({ target }) => {
    if (target.matches?.(FIELD)) Object.assign(state, { was: target.value, typed: false });
  });
  on("focusout", ({ target }) => {
    if (target.matches?.(FIELD)) leave(target, state);
  });
  on("input", (event) => {
    if (!event.target.matches?.(FIELD) || state.own) return;
    event.stopPropagation(); // Gradio's field holds what was chosen, not what is half typed
    state.typed = true;
    open(event.target, state);
    narrow(event.target, state);
  });
  on("click", (event) => {
    const option = event.target.closest?.('#model-list [role="option"]');
    if (option) choose(option, state);
    else if (event.target.matches?.(FIELD) && !isOpen()) {
      open(event.target, state);
      event.target.select(); // what is typed next takes its place
    }
  });
  on("mousedown", (event) => {
    if (event.target.closest?.("#model-list")) event.preventDefault(); // the keyboard stays in the field
  });
  on("keydown", (event) => {
    if (event.target.matches?.(FIELD)) key(event, state);
  });
  addEventListener("resize", () => isOpen() && place());

  return () => {
    const field = document.querySelector(FIELD);
    if (field && field.getAttribute("role") !== "combobox") named(field);
    const list = document.getElementById("model-options");
    const lost = (state.active || state.arrows) && !list?.querySelector("[data-active]"); // changed in place
    if (!list || (list === state.list && !lost)) return;
    state.list = list; // written anew
    if (field && isOpen()) narrow(field, state);
  };
}

function named(field) {
  const words = { role: "combobox", "aria-controls": "model-options", "aria-expanded": "false", "aria-autocomplete": "list",
    "aria-haspopup": "listbox", "aria-describedby": "model-proposed", autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
  for (const [name, value] of Object.entries(words)) field.setAttribute(name, value);
}

const board = () => document.getElementById("model-list");
const isOpen = () => Boolean(board()?.hasAttribute("data-open"));
const options = () => [...(board()?.querySelectorAll('[role="option"]') ?? [])];
const shown = () => options().filter((option) => !option.hidden);

/* ── opening ── */

function open(field, state) {
  if (isOpen()) return;
  Object.assign(state, { active: "", arrows: false });
  board().setAttribute("data-open", "");
  field.setAttribute("aria-expanded", "true");
  place();
  narrow(field, state);
  tell("models", {});
}

function close(field, state) {
  if (!isOpen()) return;
  board().removeAttribute("data-open");
  field.setAttribute("aria-expanded", "false");
  mark(field, state, null);
}

/** Below the field where there is room, else above it; never under the header or the bar at the foot. */
function place() {
  const block = document.getElementById("block-model");
  const [field, whole] = [document.querySelector("#model-name"), block].map((one) => one.getBoundingClientRect());
  const bar = document.querySelector(".start-bar");
  const foot = getComputedStyle(bar).position === "fixed" ? bar.getBoundingClientRect().top : innerHeight;
  const head = document.querySelector("header.top")?.getBoundingClientRect().bottom ?? 0;
  const [below, above] = [foot - field.bottom - EDGE, field.top - head - EDGE];
  const up = below < LEAST && above > below;
  board().toggleAttribute("data-up", up);
  block.style.setProperty("--list-room", `${Math.max(160, up ? above : below)}px`);
  block.style.setProperty("--list-place", `${up ? whole.bottom - field.top + 4 : field.bottom - whole.top + 4}px`);
}

/* ── narrowing down ── */

/** Shows what has all the typed words. The first of them is ready for Enter, unless an id or a folder is being typed. */
function narrow(field, state) {
  const text = state.typed ? field.value.trim().toLowerCase() : "";
  const words = text.split(/\s+/).filter(Boolean);
  for (const option of options()) option.hidden = !words.every((word) => option.dataset.words.includes(word));
  for (const group of board().querySelectorAll('[role="group"]'))
    group.hidden = !group.querySelector('[role="option"]:not([hidden])');
  const left = shown();
  const line = document.getElementById("model-said");
  if (line) say(line, text ? line.dataset[["none", "one"][left.length] ?? "some"].replace("{count}", left.length) : "");
  const kept = left.find((option) => option.dataset.name === state.active);
  const first = text && !isPlace(text) ? left[0] : null;
  const proposed = state.arrows && !text ? left.find((option) => option.hasAttribute("data-proposed")) : null;
  mark(field, state, kept ?? first ?? proposed ?? null);
}

/** The option where the arrow keys are. They begin at the one that is proposed: its button in the page is no stop. */
function mark(field, state, option) {
  state.active = option?.dataset.name ?? "";
  for (const one of options()) one.toggleAttribute("data-active", one === option);
  if (!option) return field.removeAttribute("aria-activedescendant");
  field.setAttribute("aria-activedescendant", option.id);
  const list = option.closest('[role="listbox"]');
  const [inner, outer] = [option, list].map((one) => one.getBoundingClientRect());
  if (inner.top < outer.top + 30) list.scrollTop -= outer.top + 30 - inner.top;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
}

function key(event, state) {
  const field = event.target;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && !event.altKey) {
    event.preventDefault();
    if (!isOpen()) {
      open(field, state);
      state.arrows = true; // until an option is marked: the list may be on its way
      return narrow(field, state);
    }
    const left = shown();
    const at = left.findIndex((option) => option.dataset.name === state.active);
    mark(field, state, left[at < 0 ? (step > 0 ? 0 : left.length - 1) : (at + step + left.length) % left.length] ?? null);
  } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    event.stopPropagation();
    const option = isOpen() && shown().find((one) => one.dataset.name === state.active);
    if (option) choose(option, state);
    else if (field.value.trim()) meant(field, state, true); // the same once more: what was wrong with it may be mended
  } else if (event.key === "Escape" && (isOpen() || field.value !== state.was)) {
    event.preventDefault();
    back(field, state);
    close(field, state);
  }
}

/* ── choosing ── */

const isPlace = (text) => text.includes("/") || text.startsWith("~");

function choose(option, state) {
  const field = document.querySelector(FIELD);
  taken(field, state, option.dataset.name);
  tell("change", JSON.parse(option.dataset.value));
}

/** What was typed is meant as it stands; the title of a model stands for the model. */
function meant(field, state, again = false) {
  const text = field.value.trim();
  const titled = options().find((option) => [option.dataset.name, option.dataset.title].some((name) => name?.toLowerCase() === text.toLowerCase()));
  if (titled) return choose(titled, state);
  const old = state.was;
  taken(field, state, text);
  if (text !== old || again) tell("change", { "model.name": text });
}

function taken(field, state, name) {
  state.typed = false;
  state.was = name;
  close(field, state);
  show(field, state, name);
}

/** Into the field, and into what Gradio holds of it. */
function show(field, state, name) {
  state.own = true;
  if (field.value !== name) type("model-name", name);
  state.own = false;
}

function back(field, state) {
  state.typed = false;
  field.value = state.was;
}

/** The field is left: an id or a folder is meant, the beginning of a word is not. */
function leave(field, state) {
  const text = field.value.trim();
  if (state.typed && text !== state.was && (isPlace(text) || text === "starter")) meant(field, state);
  else if (state.typed) back(field, state);
  close(field, state);
}
