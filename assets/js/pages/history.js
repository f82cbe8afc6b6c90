/* The history page: the runs that match the filter. With ?compare=A,B it shows these runs beside each other
   (compare.js). */

import { ask, give } from "../ask.js";
import { keyed, make, put, say, show } from "../dom.js";
import { Page, choose } from "../page.js";
import { saveAsFile } from "../run_file.js";
import { Compare } from "./history/compare.js";
import { Deleted } from "./history/deleted.js";
import { Queue } from "./history/queue.js";
import { Row } from "./history/run_row.js";

const PAGE = 50;
const MOST = 5;
/** Columns that are first sorted from their large end. */
const DOWN = new Set(["when", "took", "size"]);
const FILTER = { words: "search", state: "filter", model: "model", method: "method", when: "span", tagged: "tagged" };

export function page(root, words) {
  const compared = new URLSearchParams(location.search).get("compare");
  return compared ? new Compare(root, words, compared) : new History(root, words);
}

class History extends Page {
  constructor(root, words) {
    super(root, words);
    Object.assign(this, { runs: [], tag: "", rows: new Map(), limit: PAGE, picked: new Set(), typing: 0, sent: 0, heard: 0 });
    Object.assign(this, { queue: new Queue(this), deleted: new Deleted(this), order: ["", false] });
    for (const name of Object.values(FILTER)) this.get(name).addEventListener("input", () => this.sought());
    for (const head of root.querySelectorAll("[data-sort]")) head.addEventListener("click", () => this.by(head.dataset.sort));
    this.get("sort").addEventListener("input", ({ target }) => this.sorted(target.value, DOWN.has(target.value)));
    this.get("runs").addEventListener("keydown", (event) => this.keys(event));
    document.addEventListener("pointerdown", ({ target }) => { for (const menu of root.querySelectorAll(".run-menu[open]")) if (!menu.contains(target)) menu.open = false; });
    this.get("reset").addEventListener("click", () => this.reset());
    this.get("filters").addEventListener("click", ({ target }) => put(target, "aria-expanded", target.getAttribute("aria-expanded") !== "true"));
    this.get("more").addEventListener("click", () => this.further());
    this.get("unpick").addEventListener("click", () => { this.picked.clear(); this.choice(); this.get("search").focus(); });
    this.files();
    this.look(() => this.tick(), () => 3000);
  }

  /** A run's file is opened by a button, or where it is dropped. */
  files() {
    const [field, { root }] = [this.get("file"), this];
    this.get("open").addEventListener("click", () => field.click());
    field.addEventListener("change", () => { if (field.files[0]) this.open(field.files[0]); field.value = ""; });
    const brings = (event) => event.dataTransfer?.types.includes("Files");
    const over = (event, on) => { if (brings(event)) { event.preventDefault(); root.toggleAttribute("data-drop", on); } };
    document.addEventListener("dragover", (event) => over(event, true));
    document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(event, false); });
    document.addEventListener("drop", (event) => { over(event, false); if (brings(event) && event.dataTransfer.files[0]) this.open(event.dataTransfer.files[0]); });
  }

  async open(file) {
    const told = (key) => say(this.get("said"), this.words[key].replace("{name}", file.name));
    told("file.opening");
    await this.attempt(async () => {
      const { run } = await give("/studio/open", file);
      for (const name of Object.values(FILTER)) this.get(name).value = "";
      this.sorted("", false);
      await this.turn();
      told("file.opened");
      this.rows.get(run)?.title.focus();
    });
  }

  /** The filter as the request's parameters. */
  asked() {
    const wanted = new URLSearchParams({ limit: this.limit });
    for (const [key, name] of Object.entries(FILTER)) if (this.get(name).value.trim()) wanted.set(key, this.get(name).value.trim());
    const [by, down] = this.order;
    if (by) wanted.set("sort", by);
    if (down) wanted.set("down", "1");
    return wanted;
  }

  /** A press on a column's head: by this column, or the other way round. */
  by(name) {
    const [by, down] = this.order[0] ? this.order : ["when", true];
    this.sorted(name, by === name ? !down : DOWN.has(name));
  }

  sorted(by, down) {
    this.order = [by, down];
    const [shown, falls] = by ? this.order : ["when", true];
    this.get("sort").value = by === "when" ? "" : by;
    for (const head of this.root.querySelectorAll("[data-sort]")) put(head.parentElement, "aria-sort", head.dataset.sort !== shown ? "none" : falls ? "descending" : "ascending");
    this.sought();
  }

  /** Up and down go from run to run, right and left open and close the one that has the keyboard. */
  keys(event) {
    const at = event.target.closest(".run");
    const kind = ["run-title", "run-toggle"].find((name) => event.target.classList.contains(name));
    if (!at || !kind) return;
    const row = [...this.rows.values()].find((one) => one.root === at);
    const next = { ArrowDown: at.nextElementSibling, ArrowUp: at.previousElementSibling }[event.key];
    if (next) next.querySelector(`.${kind}`).focus();
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") row.open(event.key === "ArrowRight");
    else return;
    event.preventDefault();
  }

  /** A press on a tag: the runs that have it. */
  wanted(tag) {
    this.get("tagged").value = tag;
    this.sought();
  }

  /** What was asked for with another filter, or before a change of ours was heard, is not shown: it would undo what was just
      chosen. */
  async tick() {
    const [asked, state] = [this.asked(), this.state()];
    try {
      const answer = await ask(`/studio/history?${asked}&tag=${this.tag}`);
      if (state !== this.state() || this.sent > this.heard) return;
      this.deleted.take(answer.deleted);
      if (!answer.same) this.take(answer);
    } finally {
      if (state !== this.state()) setTimeout(() => this.turn());
    }
  }

  state() {
    return `${this.asked()} ${this.sent} ${this.heard}`;
  }

  /** The filter changed: asks once typing pauses. */
  sought() {
    this.limit = PAGE;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.turn(), 120);
  }

  reset() {
    for (const name of Object.values(FILTER)) this.get(name).value = "";
    this.sought();
    this.get("search").focus();
  }

  async further() {
    const last = this.runs.length;
    this.limit += PAGE;
    await this.turn();
    this.rows.get(this.runs[last]?.id)?.title.focus();
  }

  take(answer) {
    Object.assign(this, { tag: answer.tag, runs: answer.runs, count: answer.count, all: answer.all });
    this.offer("model", answer.models, (name) => name);
    this.offer("method", answer.methods, (name) => this.words[`method.${name}`] ?? name);
    this.offer("tagged", answer.tags, (name) => name, 0);
    this.queue.take(answer.queue);
    say(this.get("disk"), answer.disk);
    show(this.get("disk"), answer.disk);
    this.fill();
    const holder = answer.queue.holders.find(({ id }) => id);
    document.title = holder?.id ? this.words.tab.replace("{words}", holder.word) : (this.title ??= document.title);
  }

  /** Fills a choice; what is chosen stays, also while no run has it. */
  offer(name, found, written, least = 1) {
    const select = this.get(name);
    const chosen = select.value;
    const values = chosen && !found.includes(chosen) ? [...found, chosen] : found;
    const known = [...select.options].slice(1).map((option) => option.value);
    show(select.closest("label"), values.length > least);
    if (`${known}` === `${values}`) return;
    while (select.options.length > 1) select.lastElementChild.remove();
    for (const value of values) select.append(new Option(written(value), value));
    select.value = chosen;
  }

  /** One row a run, kept by its id. */
  fill() {
    keyed(this.get("runs"), this.rows, this.runs, (run) => new Row(this, run.id), (row, run) => row.update(run));
    show(this.get("none"), !this.all);
    show(this.get("some"), this.all);
    show(this.get("nothing"), this.all && !this.count);
    show(this.get("table"), this.count);
    const rest = this.count - this.runs.length;
    show(this.get("more"), rest > 0);
    say(this.get("more"), this.words.more.replace("{count}", Math.min(rest, PAGE)));
    const counted = this.words[this.count < this.all ? "count" : this.all === 1 ? "count.one" : "count.all"];
    say(this.get("count"), counted.replace("{count}", this.count.toLocaleString("en")).replace("{all}", this.all.toLocaleString("en")));
    this.choice();
  }

  /** The choice for the comparison: two to five. */
  choice() {
    const { picked, words } = this;
    for (const row of this.rows.values()) row.picked(picked.has(row.id), picked.size >= MOST);
    show(this.get("picked"), picked.size);
    say(this.get("picked-count"), picked.size ? words.picked.replace("{count}", picked.size) : "");
    const link = this.get("compare-link");
    show(link, picked.size > 1);
    say(link, words.compare.replace("{count}", picked.size));
    put(link, "href", `/history?compare=${[...picked].join(",")}`);
  }

  pick(id, on) {
    if (on) this.picked.add(id);
    else this.picked.delete(id);
    this.choice();
  }

  /** Sends a command for a run and announces the outcome. */
  async command(run, verb, body = {}) {
    if (verb === "delete") return this.remove(run);
    if (verb === "file") return saveAsFile(this, { ...run, kept: run.can.try });
    return this.send(`/studio/run/${encodeURIComponent(run.id)}/${verb}`, body, this.words[`done.${verb}`] ?? "");
  }

  /** Asks first only where more goes than the run. */
  async remove(run) {
    const { words } = this;
    const more = [...(run.exports ? [words["delete.exports"].replace("{count}", run.exports)] : []), ...run.after.map((title) => words["delete.after"].replace("{title}", title))];
    if (more.length) {
      say(this.get("delete-name"), run.title);
      say(this.get("delete-size"), run.size);
      this.get("delete-what").replaceChildren(...more.map((line) => make("li", {}, line)));
      if ((await choose(this.get("delete-dialog"))) !== "delete") return false;
    }
    this.picked.delete(run.id);
    const done = await this.send(`/studio/run/${encodeURIComponent(run.id)}/delete`, {}, words["done.delete"]);
    this.deleted.focus(run.id);
    return done;
  }

  restore(run) {
    return this.send(`/studio/run/${encodeURIComponent(run.id)}/restore`, {}, this.words["done.restore"]);
  }

  /** Changes a run's note, tags, color or pin. */
  mark(run, changes) {
    return this.send(`/studio/run/${encodeURIComponent(run.id)}/marks`, changes, this.words.marked);
  }

  send(path, body, done) {
    return this.attempt(async () => {
      this.sent += 1;
      const answer = await ask(path, body).finally(() => (this.heard += 1));
      if (answer.go) location.assign(answer.go);
      else await this.turn();
      say(this.get("said"), done);
    });
  }
}
