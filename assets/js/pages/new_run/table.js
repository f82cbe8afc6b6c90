/* The table of a file's own rows. A board (`[data-state]`, data/table.py) says which file is chosen and what is known of
   it; rows come in windows as they are scrolled to. What is changed here goes to the studio at once, and when changes
   rest the data set is made that the run trains on. */

import { ask } from "../../ask.js";
import { make, put, say, show } from "../../dom.js";
import { Page } from "../../page.js";
import { tell } from "./sending.js";
import { edit, editing, leave } from "./table/editor.js";
import { Grid } from "./table/grid.js";
import { Store } from "./table/store.js";

const REST = 700;
const TYPING = 250;
const LOOKED = 120;
const READ = 300;

/** Listens once; what comes back is to be called when the page has changed. */
export function table() {
  let page = null;
  return () => {
    const root = document.getElementById("data-table");
    if (!root) return;
    page ??= new Table(root);
    const told = document.querySelector("#data-rows [data-state]");
    if (told) page.told(told.dataset.state);
  };
}

class Table extends Page {
  constructor(root) {
    super(root, JSON.parse(root.dataset.words));
    Object.assign(this, { heard: null, state: null, wish: {}, found: {}, timers: {}, waiting: 0, sending: 0 });
    this.store = new Store((first, count) => this.window(first, count), (found) => this.arrived(found), (error) => this.failed(error));
    this.grid = new Grid(this.get("grid"), this);
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("dblclick", (event) => event.target.closest('[role="gridcell"]') && this.edited());
    root.addEventListener("click", (event) => this.pressed(event.target.closest("[data-rows]")?.dataset.rows));
    root.addEventListener("input", (event) => event.target.dataset.wishField && this.wished(event.target.type === "search" ? TYPING : 0));
    document.addEventListener("click", (event) => this.shown(event.target.closest("[data-wish]")?.dataset.wish));
    document.addEventListener("pointerdown", ({ target }) => {
      if (!target.closest(".cell-edit")) leave(true, false);
      const choices = root.querySelector(".rows-filter");
      if (!choices.contains(target)) choices.open = false;
    });
    document.addEventListener("click", (event) => this.held(event), true);
    document.getElementById("data-whole").addEventListener("close", () => this.placed(false));
  }

  /* ── which file ── */

  told(text) {
    if (text === this.heard) return;
    const before = this.state;
    Object.assign(this, { heard: text, state: text ? JSON.parse(text) : null });
    show(this.root, this.state);
    if (!this.state) return this.store.clear();
    if (this.waiting === 2 && this.state.config.data.path === this.awaited) this.made();
    this.offered();
    if (before?.file === this.state.file) {
      if (this.found.columns) this.headed();
      this.again();
    } else this.afresh();
    if (!this.waiting) this.looked();
  }

  /** Another file: from its first row, all rows. */
  afresh() {
    leave(false, false);
    this.asked({});
    Object.assign(this, { wish: {}, found: {}, waiting: 0, startWanted: false });
    this.making?.abort();
    this.unseen();
    this.narrowed();
  }

  /** Other rows of the file. */
  narrowed() {
    Object.assign(this.grid, { at: { place: 0, column: this.grid.at.column }, picked: [], anchor: 0 });
    this.row = null;
    this.store.clear();
    this.grid.root.scrollTop = 0;
    this.grid.marked();
    this.grid.drawn.forEach((row, place) => this.grid.filled(row, place));
    this.store.want(0, 0);
  }

  /** What rows can be narrowed down by, as far as it is known. */
  offered() {
    const { findings, languages, labels } = this.state;
    const lists = { finding: findings, language: languages.map((one) => [one, one]), label: labels.map((one) => [one, one]) };
    for (const [name, values] of Object.entries(lists)) {
      const select = this.choice(name);
      const kept = select.value;
      select.replaceChildren(select.options[0], ...values.map(([value, words]) => make("option", { value }, words)));
      if (values.some(([value]) => value === kept)) select.value = kept;
      show(select.closest("label"), values.length);
    }
  }

  choice(name) {
    return this.root.querySelector(`[data-wish-field="${name}"]`);
  }

  /* ── rows ── */

  async window(first, count) {
    return ask("/studio/data/table", { config: this.state.config, wish: { ...this.wish, first, count } });
  }

  arrived(found) {
    const { matching = 0, rows_in_file: rows = 0, columns = [], changes = 0, undone = 0 } = found;
    const same = this.found.columns?.join("\n") === columns.join("\n");
    this.found = { matching, rows, columns, changes, undone, complete: found.complete !== false, samples: same ? this.found.samples : (found.rows ?? []).slice(0, 20) };
    if (same) this.grid.again();
    else this.headed();
    this.fault("");
    this.grid.sized(matching);
    this.counted();
    clearTimeout(this.timers.more);
    if (found.complete === false) this.timers.more = setTimeout(() => this.again(), READ);
    if (changes && !this.waiting && this.state.config.data.path === this.state.file) this.rested(); // of an earlier day
    if (this.row === null) this.reached(this.grid.at.place);
  }

  headed() {
    this.grid.headed(this.found.columns, this.found.samples.map((row) => ({ cells: {}, ...row })), this.state.words);
    this.grid.again();
    this.grid.stops();
  }

  digits() {
    return this.found.rows.toLocaleString("en").length;
  }

  at(place) {
    return this.store.at(place);
  }

  wanted(first, last) {
    this.store.want(first, last);
  }

  /** Why a row is marked. */
  why(row) {
    const findings = (row.findings ?? []).map((code) => this.state.findings.find(([one]) => one === code)?.[2]);
    return [row.excluded ? this.words.excluded : "", row.problem, ...findings].filter(Boolean).join(" ");
  }

  counted() {
    const { matching, rows, changes, undone } = this.found;
    const said = (key, count) => (count === 1 ? this.words[`${key}.one`] : this.words[key]).replace("{count}", count.toLocaleString("en"));
    const all = this.found.complete ? said("count", rows) : this.words["count.so_far"].replace("{rows}", rows.toLocaleString("en"));
    const some = this.words["count.of"].replace("{count}", matching.toLocaleString("en")).replace("{rows}", rows.toLocaleString("en"));
    say(this.get("count"), this.grid.picked.length ? this.chosen : matching === rows ? all : some);
    const changed = changes ? said("changes", changes) : "";
    say(this.get("changes"), this.waiting === 2 ? this.words.making.replace("{changes}", changed || said("changes", 0)) : changed);
    for (const [name, count] of [["undo", changes], ["redo", undone]]) this.button(name).disabled = !count;
    const finding = this.state.findings.find(([code]) => code === this.wish.finding);
    const narrowed = matching !== rows || Object.keys(this.wish).some((name) => name !== "order");
    const only = finding ? this.words.of_finding.replace("{title}", finding[1]) : matching ? this.words.narrowed : this.words.none;
    say(this.get("only"), narrowed ? only.replace("{count}", matching.toLocaleString("en")) : "");
    show(this.get("only").parentElement, narrowed);
  }

  button(name) {
    return this.root.querySelector(`[data-rows="${name}"]`);
  }

  picked(count) {
    this.chosen = this.words.selected.replace("{count}", count.toLocaleString("en"));
    if (this.found.columns) this.counted();
  }

  /** Asks once more for what is shown: the studio reads on in a large file with every question. */
  again() {
    this.store.stale();
    if (this.grid.count) this.grid.draw();
    else this.store.want(0, 0); // the first rows are on their way still, or there are none: nothing in view asks for them
  }

  /* ── which rows ── */

  wished(pause) {
    clearTimeout(this.timers.wish);
    this.timers.wish = setTimeout(() => {
      const given = [...this.root.querySelectorAll("[data-wish-field]")].map((one) => [one.dataset.wishField, one.type === "number" ? Math.max(0, Math.floor(Number(one.value))) : one.value.trim()]);
      this.wish = Object.fromEntries(given.filter(([name, value]) => value && !(name === "order" && value === "file")));
      this.narrowed();
    }, pause);
  }

  /** The fields as they ask for this. */
  asked(wish) {
    for (const one of this.root.querySelectorAll("[data-wish-field]")) one.value = wish[one.dataset.wishField] ?? one.options?.[0].value ?? "";
  }

  /** A button, here or elsewhere, shows only some rows, or all again. */
  shown(wish) {
    if (!wish || !this.state) return;
    this.asked(JSON.parse(wish));
    this.wished(0);
  }

  /* ── the row as the model will see it ── */

  reached(place) {
    const row = this.store.at(place);
    if (!row || row.row === this.row) return;
    this.row = row.row;
    this.looked();
  }

  looked() {
    clearTimeout(this.timers.looked);
    this.timers.looked = setTimeout(async () => {
      if (!this.row || !this.state) return;
      this.looking?.abort();
      this.looking = new AbortController();
      try {
        const { seen } = await ask("/studio/data/row", { config: this.state.config, row: this.row }, this.looking.signal);
        if (seen !== this.seen) this.get("seen").innerHTML = this.seen = seen; // made by Python, which escapes all that is a row's
      } catch (error) {
        if (error.name !== "AbortError") this.unseen();
      }
      show(this.get("seen").parentElement, this.get("seen").childElementCount);
    }, LOOKED);
  }

  unseen() {
    this.seen = "";
    this.get("seen").replaceChildren();
  }

  roleGiven(column, word) {
    tell("roles", { column, word, file: this.state.file });
  }

  /* ── keys and buttons ── */

  key(event) {
    const cell = event.target.closest?.('[role="gridcell"], [role="rowheader"], [role="columnheader"]');
    if (event.target.tagName === "SELECT" && cell && event.key === "Escape") return this.stop(event, () => cell.focus());
    if (event.target !== cell || editing() || event.altKey) return;
    const far = event.ctrlKey || event.metaKey;
    if (far && event.key.toLowerCase() === "z") return this.stop(event, () => this.pressed(event.shiftKey ? "redo" : "undo"));
    if (far && event.key.toLowerCase() === "y") return this.stop(event, () => this.pressed("redo"));
    if (["Enter", "F2"].includes(event.key) && !far) return this.stop(event, () => this.edited());
    if (event.key === "Delete") return this.stop(event, () => this.pressed("exclude"));
    if (this.grid.key(event)) event.preventDefault();
  }

  stop(event, work) {
    event.preventDefault();
    work();
  }

  pressed(name) {
    if (!name || !this.state) return;
    if (name === "undo" || name === "redo") this.change(name);
    if (name === "exclude") this.excluded();
    if (name === "all") this.shown("{}");
    if (name === "whole") this.placed(!document.getElementById("data-whole").open);
  }

  /** Over the whole window, or back in its place; open rows and the keyboard stay where they are. */
  placed(whole) {
    const dialog = document.getElementById("data-whole");
    this.home ??= this.root.parentElement;
    const [top, left] = [this.grid.root.scrollTop, this.grid.root.scrollLeft];
    (whole ? dialog : this.home).prepend(this.root);
    if (whole) dialog.showModal();
    else if (dialog.open) dialog.close();
    const words = this.words[whole ? "whole.close" : "whole"];
    say(this.button("whole").querySelector("span"), words);
    put(this.button("whole"), "title", words);
    Object.assign(this.grid.root, { scrollTop: top, scrollLeft: left });
    this.grid.draw();
    (this.grid.cell() ?? this.button("whole")).focus({ preventScroll: true });
  }

  /* ── changes ── */

  /** The cell where the keyboard is, as a field; in the header its choice of a role. */
  async edited() {
    const { place, column } = this.grid.at;
    const cell = this.grid.cell();
    if (place < 0) return cell?.querySelector("select")?.focus();
    const [name, row] = [this.found.columns[column - 1], this.store.at(place)];
    if (!name || !row || !cell) return undefined;
    let text = row.cells?.[name] ?? "";
    try {
      if (row.cut?.includes(name)) text = (await ask("/studio/data/row", { config: this.state.config, row: row.row })).cells[name];
    } catch (error) {
      return this.failed(error);
    }
    const title = this.words.edit.replace("{column}", name).replace("{row}", row.row);
    return edit(cell, {
      text, name: title, words: this.words, left: () => this.grid.cell()?.focus({ preventScroll: true }),
      save: (value) => this.change("change", { rows: [row.row], column: name, value }),
    });
  }

  /** Excludes the selected rows, else the one where the keyboard is; all that were excluded already come back. */
  excluded() {
    const ranges = this.grid.picked.length ? this.grid.picked : [[this.grid.at.place, this.grid.at.place]];
    const known = ranges.flatMap(([first, last]) => (last - first < 200 ? Array.from({ length: last - first + 1 }, (_, index) => this.store.at(first + index)) : []));
    const back = known.length > 0 && known.every((row) => row?.excluded);
    const rows = Promise.all(ranges.map(([first, last]) => this.store.numbers(first, last)));
    return this.change("change", rows.then((found) => ({ rows: found.flat(), excluded: !back })));
  }

  /** From here on Start waits: what was changed a moment before it is in the data set, too. */
  async change(what, change) {
    const { config, file } = this.state;
    this.waiting = 1;
    this.sending += 1;
    this.making?.abort();
    clearTimeout(this.timers.rest);
    try {
      const wish = await change;
      if (wish?.rows?.length !== 0) await ask(`/studio/data/${what}`, wish ? { config, change: wish } : { config });
      this.again();
      this.looked();
    } catch (error) {
      this.startWanted = false;
      this.failed(error);
    }
    this.sending -= 1;
    if (this.sending || this.state?.file !== file) return;
    if (this.startWanted) this.rested();
    else this.timers.rest = setTimeout(() => this.rested(), REST);
  }

  /** Changes rest: the data set is made that the run trains on. What changes meanwhile makes it once more. */
  async rested() {
    clearTimeout(this.timers.rest);
    this.waiting = 2;
    this.making?.abort();
    this.making = new AbortController();
    const { config, file } = this.state;
    this.counted();
    try {
      const { path } = await ask("/studio/data/made", { config }, this.making.signal);
      if (this.waiting !== 2 || this.state?.file !== file) return;
      this.awaited = path;
      if (path === this.state.config.data.path) this.made();
      else tell("edited", { path, file });
    } catch (error) {
      if (error.name === "AbortError") return;
      Object.assign(this, { waiting: 0, startWanted: false });
      this.counted();
      this.failed(error);
    }
  }

  made() {
    this.waiting = 0;
    this.counted();
    this.looked();
    if (this.startWanted) setTimeout(() => document.getElementById("start")?.click(), REST); // the form has the file by then
    this.startWanted = false;
  }

  /** Start waits for the changes. */
  held(event) {
    if (!this.waiting || !event.target.closest?.("#start")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.startWanted = true;
    if (this.waiting === 1 && !this.sending) this.rested();
  }
}
