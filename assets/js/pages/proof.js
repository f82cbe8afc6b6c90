/* The proof page: starts proofs, shows their progress and lists their results. A proof is a job of its own. */

import { ask } from "../ask.js";
import { drawn, keyed, list, make, put, say, show, state, told } from "../dom.js";
import { Page } from "../page.js";

export function page(root, words) {
  return new Proofs(root, words);
}

class Proofs extends Page {
  constructor(root, words) {
    super(root, words);
    Object.assign(this, { living: true, rows: new Map(), was: new Map() });
    for (const button of root.querySelectorAll("[data-start]")) button.addEventListener("click", () => this.send(`start/${button.dataset.start}`));
    for (const button of root.querySelectorAll("[data-stop]")) button.addEventListener("click", () => this.send(`${button.dataset.id}/stop`));
    this.look(async () => this.take((await ask("/studio/proofs")).proofs), () => (this.living ? 1000 : 5000));
  }

  take(proofs) {
    this.living = proofs.some((one) => one.living);
    for (const start of this.root.querySelectorAll("[data-start]")) this.work(start.dataset.start, proofs);
    const ended = proofs.filter((one) => !one.living); // an ended proof never changes
    keyed(this.get("results"), this.rows, ended, (one) => ({ root: this.row(one) }));
    show(this.get("none"), !ended.length);
    this.announce(proofs);
  }

  /** A kind's progress; the focus moves to the button that replaces the other. */
  work(kind, proofs) {
    const part = (name) => this.root.querySelector(`[data-${name}="${kind}"]`);
    const now = proofs.find((one) => one.kind === kind && one.living);
    const [start, stop, bar] = [part("start"), part("stop"), part("bar")];
    const held = document.activeElement === start || document.activeElement === stop;
    show(part("work"), now);
    show(start, !now);
    if (held) (now ? stop : start).focus();
    if (!now) return;
    stop.dataset.id = now.id;
    say(part("text"), now.progress.text);
    if (now.progress.share === null) bar.removeAttribute("value");
    else put(bar, "value", now.progress.share.toFixed(4));
  }

  /** Announces the begin and end of a proof. */
  announce(proofs) {
    for (const one of proofs) {
      const before = this.was.get(one.id);
      if (before !== undefined && before !== one.verdict) say(this.get("said"), `${one.title}: ${one.verdict}`);
      this.was.set(one.id, one.verdict);
    }
  }

  /** One result. */
  row(one) {
    const { words } = this;
    const verdict = state();
    told(verdict, one.tone, one.verdict);
    const head = make("div", { class: "run-head" }, make("h3", {}, `${one.title}, ${one.when}`), verdict);
    const facts = make("dl", { class: "proof-facts" }, ...one.facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    const remove = make("button", { type: "button", class: "quiet danger", "aria-label": `${words.delete}: ${one.title}, ${one.when}`, onclick: () => this.remove(one.id) }, words.delete);
    const more = make("details", { class: "run-more" }, make("summary", { "aria-label": `${words.figures}: ${one.title}, ${one.when}` }, words.figures),
      make("p", {}, make("code", { class: "path" }, one.command)), this.table(one));
    return make("li", { class: "card" }, head, one.cause ? make("p", { class: "run-cause" }, one.cause) : null,
      ...one.note.split("\n").filter(Boolean).map((words) => make("p", {}, words)), one.picture ? this.picture(one.picture) : null, one.facts.length ? facts : null,
      make("div", { class: "run-foot" }, one.rows.length ? more : null, remove));
  }

  /** Losses beside those of 16 bits, and a strip of bars a side; the figures stand in the table. */
  picture({ title, lines, legend, layers }) {
    const key = legend.map(([kind, words]) => make("span", { class: kind }, make("i", { class: "swatch", "aria-hidden": "true" }), words));
    const strips = layers.map((one) => make("div", {}, make("p", { class: "about" }, one.words), drawn(one.bars)));
    return make("figure", { class: "eight" }, make("figcaption", {}, make("b", {}, title), make("span", { class: "legend" }, ...key)), drawn(lines), ...strips);
  }

  table(one) {
    const head = make("tr", {}, ...one.head.map((name) => make("th", { scope: "col" }, name)));
    const body = make("tbody");
    list(body, one.rows, () => make("tr"), (row, cells) => row.append(...cells.map((cell, index) => make(index ? "td" : "th", index ? {} : { scope: "row" }, cell))));
    const caption = make("caption", { class: "sr-only" }, `${one.title}, ${one.when}`);
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${one.title}, ${one.when}` }, make("table", { class: "figures-table" }, caption, make("thead", {}, head), body));
  }

  async remove(id) {
    const rows = [...this.rows.values()];
    const next = rows[rows.indexOf(this.rows.get(id)) + 1] ?? rows[rows.indexOf(this.rows.get(id)) - 1];
    await this.send(`${id}/delete`);
    (next?.root.querySelector("button") ?? this.root.querySelector("[data-start]:not([hidden])"))?.focus();
  }

  send(path) {
    return this.attempt(async () => {
      await ask(`/studio/proofs/${path}`, {});
      await this.turn();
    });
  }
}
