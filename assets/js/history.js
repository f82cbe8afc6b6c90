/* The history page: all runs, searched and filtered here, changed only where something changed. */

import { ask, poll } from "./ask.js";
import { choose } from "./confirm.js";
import { copy, field, make, put, say, show } from "./dom.js";

export function history_(root, words) {
  return new History(root, words);
}

class History {
  constructor(root, words) {
    Object.assign(this, { root, words, runs: [], tag: "", rows: new Map() });
    this.get = (name) => field(root, name);
    for (const name of ["search", "filter"]) this.get(name).addEventListener("input", () => this.sift());
    this.turn = poll(root, () => this.tick(), () => 3000);
  }

  async tick() {
    try {
      const answer = await ask(`/studio/runs?tag=${encodeURIComponent(this.tag)}`);
      if (this.away) this.fault("");
      this.away = false;
      if (answer.same) return;
      this.tag = answer.tag;
      this.runs = answer.runs;
      this.fill();
    } catch (error) {
      this.away = true;
      this.fault(error.message || this.words.away);
    }
  }

  /** One row a run, kept by its id: what stands stays where it is. */
  fill() {
    const box = this.get("runs");
    const wanted = new Set(this.runs.map((run) => run.id));
    for (const [id, row] of this.rows) if (!wanted.has(id)) { row.root.remove(); this.rows.delete(id); }
    this.runs.forEach((run, index) => {
      let row = this.rows.get(run.id);
      if (!row) this.rows.set(run.id, (row = this.row(run.id)));
      if (box.children[index] !== row.root) box.insertBefore(row.root, box.children[index] ?? null);
      this.update(row, run);
    });
    show(this.get("none"), !this.runs.length);
    show(this.get("some"), this.runs.length);
    this.sift();
  }

  row(id) {
    const { words } = this;
    const part = (tag, attributes, ...children) => make(tag, attributes, ...children);
    const row = { id, title: part("a", { class: "run-title" }), state: part("span", { class: "state" }, part("span", { class: "dot" }), part("b")) };
    row.facts = ["when", "took", "steps", "loss", "held_out", "preset"].map((name) => {
      const value = part("dd");
      row[name] = value;
      return part("div", { class: `fact fact-${name}` }, part("dt", {}, words[name]), value);
    });
    row.buttons = { resume: this.button(row, "resume"), rerun: this.button(row, "rerun"), delete: this.button(row, "delete") };
    row.cause = part("p", { class: "run-cause" });
    row.yaml = part("pre", { tabindex: 0 });
    row.command = part("code", { class: "path" });
    const copies = part("button", { type: "button", onclick: async () => { say(copies, (await copy(row.command.textContent)) ? words.copied : words.not_copied); } }, words.copy);
    row.more = part("details", { class: "run-more", ontoggle: () => this.open(row) }, part("summary", {}, words.config), part("p", {}, words.repeat), part("p", { class: "job-path" }, row.command, copies), row.yaml);
    row.root = part("li", { class: "run" },
      part("div", { class: "run-head" }, row.title, row.state),
      part("dl", { class: "run-facts" }, ...row.facts), row.cause,
      part("div", { class: "run-foot" }, part("div", { class: "run-buttons" }, row.buttons.resume, row.buttons.rerun, row.buttons.delete), row.more));
    return row;
  }

  button(row, verb) {
    return make("button", { type: "button", class: verb === "delete" ? "quiet danger" : "quiet", onclick: () => this.command(row, verb) }, this.words[verb]);
  }

  update(row, run) {
    row.run = run;
    say(row.title, run.title);
    put(row.title, "href", `/watch?run=${encodeURIComponent(run.id)}`);
    put(row.state, "class", `state tone-${run.tone}`);
    say(row.state.lastElementChild, run.word);
    for (const name of ["when", "took", "steps", "loss", "held_out", "preset"]) say(row[name], run[name]);
    say(row.cause, run.cause);
    show(row.cause, run.cause);
    for (const [verb, button] of Object.entries(row.buttons)) {
      show(button, run.can[verb]);
      put(button, "aria-label", `${this.words[verb]}: ${run.title}`);
    }
  }

  sift() {
    const wanted = this.get("search").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const state = this.get("filter").value;
    let count = 0;
    for (const run of this.runs) {
      const fits = (!state || run.group === state) && wanted.every((word) => run.words.includes(word));
      show(this.rows.get(run.id).root, fits);
      count += fits ? 1 : 0;
    }
    say(this.get("count"), this.words.count.replace("{count}", count).replace("{all}", this.runs.length));
  }

  async open(row) {
    if (!row.more.open || row.yaml.textContent) return;
    try {
      const config = await ask(`/studio/run/${encodeURIComponent(row.id)}/config`);
      say(row.yaml, config.yaml);
      say(row.command, config.command);
    } catch (error) {
      say(row.yaml, error.message || this.words.away);
    }
  }

  async command(row, verb) {
    if (verb === "delete") {
      say(this.get("delete-name"), row.run.title);
      say(this.get("delete-size"), row.run.size);
      if ((await choose(this.get("delete-dialog"))) !== "delete") return;
    }
    this.fault("");
    try {
      const answer = await ask(`/studio/run/${encodeURIComponent(row.id)}/${verb}`, {});
      if (answer.go) location.assign(answer.go);
      else await this.turn();
    } catch (error) {
      this.fault(error.message || this.words.away);
    }
  }

  fault(text) {
    say(this.get("fault"), text);
    show(this.get("fault"), text);
  }
}
