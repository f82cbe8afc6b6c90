/* Two to five runs beside each other: their curves, how they ended, what they differ in, and one question to each. */

import { asks, exchange, settings } from "../../answers.js";
import { ask, stream } from "../../ask.js";
import { Chart } from "../../chart.js";
import { list, make, put, say, show, state, told } from "../../dom.js";
import { Page } from "../../page.js";

const LEVEL = 0.9;

export class Compare extends Page {
  constructor(root, words, ids) {
    super(root, { ...words.compared, away: words.away });
    Object.assign(this, { letters: words.letters, ids, zoomed: [0, 0], runs: [] });
    for (const [name, on] of Object.entries({ history: false, tell: false, compare: true, back: true })) show(this.get(name), on);
    say(this.get("title"), this.words.title);
    put(this.get("reports"), "href", `/report?${new URLSearchParams(ids.split(",").map((id) => ["run", id]))}`);
    document.title = document.title.replace(/^[^·]+/, `${this.words.title} `);
    asks(this, this.get("ask"), (prompt, signal) => this.askAll(prompt, signal));
    this.look(() => this.tick(), () => (this.runs.some((run) => run.living) ? 3000 : 20000));
  }

  async tick() {
    const asked = new URLSearchParams({ runs: this.ids, smooth: LEVEL, first: this.zoomed[0], last: this.zoomed[1] });
    try {
      this.take(await ask(`/studio/compare?${asked}`));
    } finally {
      show(this.get("compare").querySelector(".compare-ask"), this.runs.length);
    }
  }

  take(answer) {
    this.runs = answer.runs;
    if (`${answer.groups.join("|")}` !== this.together) this.build(answer.groups);
    say(this.get("apart"), answer.apart);
    show(this.get("apart"), answer.apart);
    this.kind = ["answer", "label"].find((kind) => this.runs.some((run) => run.kind === kind));
    say(this.get("second-name"), this.words[`second.${this.kind}`]);
    show(this.get("second-box"), this.kind);
    for (const chart of this.charts) chart.update({ ...answer.curves, smooth: {}, best: null });
    this.heads();
    this.table("finals", answer.finals);
    this.table("differing", answer.differing);
    say(this.get("same"), answer.differing.length ? answer.same : `${this.words.none} ${answer.same}`);
    show(this.get("differing").closest("div"), answer.differing.length);
  }

  /** The charts, two for each group of runs that can be ranked, and the tables' heads: once, and anew where it turns
      out that others belong together (a run that waited has begun). */
  build(groups) {
    this.together = groups.join("|");
    const group = { words: this.words.chart, hover: (step) => this.charts.forEach((chart) => chart.hover(step)), zoom: (from, to) => this.zoom(from, to) };
    const series = (members, key, more = {}) => members.map((index) => ({ key: `${key}${index}`, label: `${this.letters[index]} · ${this.runs[index].title}`, tone: `run-${index}`, ...more }));
    const named = (title, members) => (groups.length > 1 ? this.words.group.replace("{title}", title).replace("{letters}", members.map((index) => this.letters[index]).join(", ")) : title);
    const specs = groups.flatMap((members) => [
      { key: "train", title: named(this.words.train, members), format: "loss", log: true, series: series(members, "train") },
      { key: "held", title: named(this.words.held, members), format: "loss", log: true, best: true, series: series(members, "held", { points: true }) },
    ]);
    this.get("compare-charts").replaceChildren();
    this.charts = specs.map((spec) => {
      const host = make("figure", { class: `chart-compare` });
      this.get("compare-charts").append(host);
      return new Chart(host, spec, group);
    });
    for (const name of ["finals", "differing"]) {
      const head = this.get(`${name}-head`);
      while (head.children.length > 1) head.lastElementChild.remove();
      head.append(...this.runs.map((run, index) => make("th", { scope: "col", title: run.title }, this.mark(index), this.words.letter.replace("{letter}", this.letters[index]))));
    }
  }

  mark(index) {
    return make("span", { class: `swatch tone-run-${index}`, "aria-hidden": "true" });
  }

  heads() {
    const create = () => {
      const index = this.get("compared").children.length;
      return make("li", {}, make("b", {}, this.mark(index), this.letters[index]), make("a"), state(), make("span", { class: "compared-own" }));
    };
    list(this.get("compared"), this.runs, create, (item, run) => {
      say(item.children[1], run.title);
      put(item.children[1], "href", `/watch?run=${encodeURIComponent(run.id)}`);
      told(item.children[2], run.tone, run.word);
      say(item.children[3], run.kept_of_it);
      show(item.children[3], run.kept_of_it);
    });
  }

  table(name, rows) {
    const create = () => make("tr", {}, make("th", { scope: "row" }), ...this.runs.map(() => make("td", {}, make("span"), make("em"))));
    list(this.get(name), rows, create, (line, row) => {
      say(line.children[0], row.label);
      if (name === "differing") put(line.children[0], "title", row.key);
      row.values.forEach((value, index) => {
        const [text, mark] = line.children[index + 1].children;
        say(text, value);
        say(mark, row.best?.[index] ? this.words.lowest : "");
      });
    });
  }

  zoom(from, to) {
    this.zoomed = from === null ? [0, 0] : [Math.max(0, Math.floor(from)), Math.max(Math.ceil(to), Math.floor(from) + 2)];
    this.turn();
  }

  /** One model after the other. The original is asked once for each base model, with the first run that has it. The
      second field goes to the runs of its kind: an answer to reward models, a second text to classifiers. */
  async askAll(prompt, signal) {
    const { words } = this;
    const second = this.kind ? this.get("second").value.trim() : "";
    const bases = new Set();
    const turns = this.runs.map((run, index) => {
      const fresh = run.kept && !run.kind && !bases.has(run.base);
      if (fresh) bases.add(run.base);
      const text = !run.kept ? words.unsaved : run.kind === "answer" && !second ? words["second.missing"] : undefined;
      return { run, index, text, sides: fresh ? ["base", "tuned"] : ["tuned"] };
    });
    const columns = turns.flatMap(({ run, index, text, sides }) => {
      const own = { key: `tuned${index}`, kind: `run-${index}`, title: `${this.letters[index]} · ${run.title}`, text };
      return sides.length > 1 ? [{ key: `base${index}`, kind: "base", title: words.original.replace("{model}", run.model) }, own] : [own];
    });
    const card = exchange(this.get("answers"), second ? `${prompt}\n\n${second}` : prompt, columns, words);
    try {
      for (const turn of turns) if (turn.text === undefined) await this.askOne(turn, [prompt, second], card, signal);
    } finally {
      card.note("");
      card.finish();
    }
  }

  async askOne({ run, index, sides }, [prompt, second], card, signal) {
    const mine = run.kind === this.kind ? second : "";
    const messages = [{ role: "user", content: prompt }, ...(run.kind === "answer" ? [{ role: "assistant", content: mine }] : [])];
    const question = { run: run.id, messages, second: run.kind === "label" ? mine : "", sides, ...settings(this) };
    card.note(this.words.asking.replace("{title}", run.title));
    for (const side of sides) card.begin(`${side}${index}`);
    try {
      await stream("/studio/ask", question, (line) => { if (line.fault) card.fault(`tuned${index}`, line.fault); else if (line.side) card.add(`${line.side}${index}`, line); }, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      card.fault(`tuned${index}`, error.message || this.words.away); // the others are asked all the same
    }
  }
}
