/* One cell's text, edited where it stands: a short one in a line that Enter saves, a long one in a box. */

import { make } from "../../../dom.js";

const LONG = 70;
let open = null;

/** Lets a cell's text be changed; `save(text)` is called when it was. */
export function edit(cell, { text, name, words, save, left }) {
  leave(false);
  const box = cell.getBoundingClientRect();
  const long = text.length > LONG || text.includes("\n");
  const field = make("textarea", { "aria-label": name, rows: 1, spellcheck: "true" });
  field.value = text;
  const wide = Math.max(box.width, long ? 440 : 160);
  const buttons = [["save", true], ["leave", false]].map(([word, saves]) => make("button", { type: "button", class: "quiet-push", onclick: () => leave(saves) }, words[`edit.${word}`]));
  const foot = long ? make("div", { class: "edit-foot" }, make("span", { class: "hint" }, words["edit.keys"]), ...buttons) : null;
  const root = make("div", { class: long ? "cell-edit long" : "cell-edit" }, field, foot);
  Object.assign(root.style, {
    left: `${Math.max(8, Math.min(box.left, innerWidth - wide - 8))}px`, width: `${Math.min(wide, innerWidth - 16)}px`,
    top: `${Math.max(8, Math.min(box.top, innerHeight - (long ? 260 : 48)))}px`,
  });
  cell.closest("#data-table").append(root);
  open = { root, field, text, save, left };
  field.addEventListener("keydown", (event) => key(event, long));
  root.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !root.contains(relatedTarget)) leave(true, false);
  });
  field.focus();
  field.select();
}

/** Ends the editing, if any; the keyboard goes back to the cell. */
export function leave(saves, back = true) {
  if (!open) return;
  const { root, field, text, save, left } = open;
  open = null;
  const value = field.value;
  root.remove();
  if (saves && value !== text) save(value);
  if (back) left();
}

export const editing = () => Boolean(open);

function key(event, long) {
  event.stopPropagation(); // the grid's keys, and Ctrl+Enter, which starts a run
  const saves = event.key === "Enter" && (event.ctrlKey || event.metaKey || (!long && !event.shiftKey && !event.isComposing));
  if (!saves && event.key !== "Escape") return;
  event.preventDefault();
  leave(saves);
}
