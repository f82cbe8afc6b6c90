/* Two to five runs beside each other: their curves, how they ended, what they differ in, and one question to each. */

import { ask, poll, stream } from "../../ask.js";
import { Chart } from "../../chart.js";
import { field, list, make, put, say, show } from "../../dom.js";

const LEVEL = 0.9;

export class Compare {
  constructor(root, words, ids) {
    Object.assign(this, { root, words: words.compared, away_: words.away, letters: words.letters, ids, zoomed: [0, 0], runs: [], busy: null });
    this.get = (name) => field(root, name);
    for (const [name, on] of Object.entries({ history: false, tell: false, compare: true, back: true })) show(this.get(name), on);
    say(this.get("title"), this.words.title);
    document.title = document.title.replace(/^[^·]+/, `${this.words.title} `);
    this.get("ask").addEventListener("submit", (event) => { event.preventDefault(); this.askAll(); });
    this.get("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.askAll(); } });
    this.get("cancel").addEventListener("click", () => this.busy?.abort());
    this.turn = poll(root, () => this.tick(), () => (this.runs.some((run) => run.living) ? 3000 : 20000));
  }

  async tick() {
    const asked = new URLSearchParams({ runs: this.ids, smooth: LEVEL, first: this.zoomed[0], last: this.zoomed[1] });
    try {
      const answer = await ask(`/studio/compare?${asked}`);
      this.fault("");
      this.take(answer);
    } catch (error) {
      this.fault(error.message || this.away_);
      if (!this.runs.length) show(this.get("compare").querySelector(".compare-ask"), false);
    }
  }

  take(answer) {
    this.runs = answer.runs;
    if (`${answer.groups.join("|")}` !== this.together) this.build(answer.groups);
    say(this.get("apart"), answer.apart);
    show(this.get("apart"), answer.apart);
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
      return make("li", {}, make("b", {}, this.mark(index), this.letters[index]), make("a"), make("span", { class: "state" }, make("span", { class: "dot", "aria-hidden": "true" }), make("b")));
    };
    list(this.get("compared"), this.runs, create, (item, run) => {
      say(item.children[1], run.title);
      put(item.children[1], "href", `/watch?run=${encodeURIComponent(run.id)}`);
      put(item.children[2], "class", `state tone-${run.tone}`);
      say(item.children[2].lastElementChild, run.word);
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

  /** One model after the other. The original is asked once for each base model, with the first run that has it. */
  async askAll() {
    const prompt = this.get("prompt").value.trim();
    if (!prompt || this.busy || !this.runs.length) return;
    this.fault("");
    this.busy = new AbortController();
    this.working(true);
    const bases = new Set();
    const turns = this.runs.map((run, index) => {
      const fresh = run.kept && !bases.has(run.base);
      if (run.kept) bases.add(run.base);
      return { run, index, fresh };
    });
    const card = this.card(prompt, turns);
    try {
      for (const turn of turns) if (turn.run.kept) await this.askOne(turn, prompt, card);
    } catch (error) {
      if (error.name !== "AbortError") this.fault(error.message || this.away_);
    } finally {
      card.finish();
      this.busy = null;
      this.working(false);
    }
  }

  async askOne({ run, index, fresh }, prompt, card) {
    const number = (name) => Number(this.get(name).value) || 0;
    const question = {
      run: run.id,
      messages: [{ role: "user", content: prompt }],
      max_new_tokens: number("length") || 128,
      temperature: number("temperature"),
      seed: number("seed"),
      sides: fresh ? ["base", "tuned"] : ["tuned"],
    };
    card.begin(index, fresh, this.words.asking.replace("{title}", run.title));
    try {
      await stream("/studio/ask", question, (line) => { if (line.fault) card.fault(index, line.fault); else if (line.side) card.add(index, line); }, this.busy.signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      card.fault(index, error.message || this.away_); // the others are asked all the same
    }
  }

  working(on) {
    this.get("send").disabled = on;
    show(this.get("cancel"), on);
  }

  card(prompt, turns) {
    const { words } = this;
    const places = new Map();
    const column = (name, kind, title) => {
      const text = make("p", { class: "answer-text", "data-wait": true }, words.turn);
      places.set(name, text);
      return make("div", { class: `answer ${kind}` }, make("h3", {}, title), text);
    };
    const columns = turns.flatMap(({ run, index, fresh }) => {
      const own = column(`tuned${index}`, `answer-run-${index}`, `${this.letters[index]} · ${run.title}`);
      if (!run.kept) { places.get(`tuned${index}`).removeAttribute("data-wait"); say(places.get(`tuned${index}`), words.unsaved); }
      return fresh ? [column(`base${index}`, "answer-base", words.original.replace("{model}", run.model)), own] : [own];
    });
    const note = make("p", { class: "answer-note", role: "status" });
    this.get("answers").prepend(make("article", { class: "exchange" }, make("p", { class: "question" }, prompt), note, make("div", { class: "answers" }, ...columns)));
    const settle = (text, said) => { text.removeAttribute("data-wait"); say(text, said); };
    return {
      begin: (index, fresh, said) => { say(note, said); for (const side of fresh ? ["base", "tuned"] : ["tuned"]) say(places.get(`${side}${index}`), words.waiting); },
      add: (index, { side, text, done }) => { const place = places.get(`${side}${index}`); if (place) settle(place, text || (done ? words.nothing : words.waiting)); },
      fault: (index, said) => settle(places.get(`tuned${index}`), said),
      finish: () => { say(note, ""); for (const text of places.values()) if (text.hasAttribute("data-wait")) settle(text, words.no_answer); },
    };
  }

  fault(text) {
    say(this.get("fault"), text);
    show(this.get("fault"), text);
  }
}
