/* The watch page: polls one run and brings charts, words and buttons up to date. It only looks: closing it changes
   nothing for the run. */

import { ask } from "../ask.js";
import { Chart } from "../chart.js";
import { fields, list, make, put, say, show, verdict } from "../dom.js";
import { Page, choose } from "../page.js";
import { saveAsFile } from "../run_file.js";
import { matrix } from "./watch/matrix.js";

const EMPTY = { steps: [], raw: {}, smooth: {}, points: {}, last: {}, best: null, begin: 0, until: 1 };

/** What is to be typed stands in the letters of a terminal; advice is words. */
const COMMAND = /^(sudo|pip|python3?|wsl) /;

/** What opens New run with this run's settings, with a change or to be changed there. */
const AGAIN = new Set(["mend", "rerun"]);

/** The buttons that do it: beside a failure, and beside what became of the run. */
const AGAINS = ["next-do", "verdict-again"];

export function page(root, words) {
  return new Watch(root, words);
}

class Watch extends Page {
  constructor(root, words) {
    super(root, words);
    Object.assign(this, { living: true, shape: "", since: 0, zoomed: [0, 0], model: EMPTY, said: {} });
    this.run = new URLSearchParams(location.search).get("run") ?? "";
    this.level = Number(localStorage.getItem("luthier.smooth") ?? 0.6);
    this.group = { words: words.chart, hover: (step) => this.charts.forEach((chart) => chart.hover(step)), zoom: (from, to) => this.zoom(from, to), csv: (spec) => `/studio/run/${encodeURIComponent(this.run)}/lines?names=${spec.series.map(({ key }) => key)}` };
    this.charts = words.charts.map((spec) => {
      const host = make("figure", { class: `chart-${spec.key}` });
      this.get("charts").append(host);
      return new Chart(host, spec, this.group);
    });
    this.cards = [];
    this.listen();
    this.look(() => this.tick(), () => (this.away ? 2000 : this.living ? 1000 : 4000));
  }

  listen() {
    const smooth = this.get("smooth");
    smooth.value = String(this.level);
    smooth.addEventListener("change", () => {
      this.level = Number(smooth.value);
      localStorage.setItem("luthier.smooth", smooth.value);
      this.turn();
    });
    this.get("whole").addEventListener("click", () => this.zoom(null, null));
    for (const name of AGAINS) this.get(name).addEventListener("click", ({ currentTarget }) => this.command(currentTarget.dataset.does));
    this.get("log-box").addEventListener("toggle", () => this.turn());
    this.get("save-file").addEventListener("click", () => saveAsFile(this, { id: this.run, title: this.get("name").textContent, kept: this.kept }));
    for (const button of this.root.querySelectorAll("[data-verb]")) button.addEventListener("click", () => this.command(button.dataset.verb));
  }

  /** Shows steps `from` to `to` only, on all charts; null shows the whole run again. */
  zoom(from, to) {
    const whole = from === null || (from <= this.model.first && to >= this.model.since);
    this.zoomed = whole ? [0, 0] : [Math.max(0, Math.floor(from)), Math.max(Math.ceil(to), Math.floor(from) + 2)];
    show(this.get("whole"), !whole);
    this.turn();
  }

  async tick() {
    const wanted = new URLSearchParams({ run: this.run, since: this.since, shape: this.shape, smooth: this.level, first: this.zoomed[0], last: this.zoomed[1] });
    if (this.get("log-box").open) wanted.set("log", "1");
    const asked = `${this.level} ${this.zoomed}`;
    try {
      this.take(await ask(`/studio/points?${wanted}`));
    } finally {
      if (asked !== `${this.level} ${this.zoomed}`) setTimeout(() => this.turn());
    }
  }

  take(answer) {
    show(this.get("none"), !answer.run);
    show(this.get("some"), answer.run);
    this.living = Boolean(answer.run);
    if (!answer.run) return;
    if (!this.run) this.names((this.run = answer.run));
    this.lines_of(answer.status.cards.map(({ name }) => name));
    this.draw(answer.points);
    this.words_of(answer.status);
    if (answer.log) this.lines("log", answer.log);
  }

  /** Of a run on several cards a line a card, in each chart of what is read of cards. */
  lines_of(cards) {
    if (`${cards}` === `${this.cards}`) return;
    this.cards = cards;
    this.charts = this.words.charts.map((spec, at) => {
      if (!spec.each) return this.charts[at];
      const own = cards.map((label, card) => ({ key: `${spec.each}.${card}`, label, tone: `run-${1 + (card % 4)}${card < 4 ? "" : " held-out"}` }));
      const { host } = this.charts[at];
      host.replaceChildren();
      return new Chart(host, own.length ? { ...spec, series: [...spec.series.slice(0, -1), ...own] } : spec, this.group);
    });
    this.charts.forEach((chart) => chart.update(this.model));
  }

  draw(points) {
    if (points.shape === this.shape && !points.fresh && points.version === this.version) return;
    this.version = points.version;
    this.model = merge(points.fresh ? EMPTY : this.model, points);
    this.shape = points.shape;
    this.since = points.since;
    this.charts.forEach((chart) => chart.update(this.model));
    for (const kind of this.get("marks").children) show(kind, points.marks.some(([, one]) => one === kind.dataset.mark));
  }

  words_of(status) {
    const { root } = this;
    this.living = status.living;
    if (document.title !== status.tab) document.title = status.tab;
    fields(root, { name: status.name, word: status.word, sentence: status.sentence, ...status.facts, ...status.words });
    list(this.get("cards"), status.cards, () => make("li", {}, make("b"), make("span")), (item, { name, state }) => {
      say(item.children[0], name);
      say(item.children[1], state);
    });
    show(this.get("cards"), status.cards.length);
    const waits = status.stage?.waits;
    for (const tile of root.querySelectorAll("[data-measure]")) show(tile, status.facts[tile.dataset.measure]);
    put(this.get("state"), "class", `state tone-${waits ? "wait" : status.tone}`);
    put(this.get("stage-box"), "class", waits ? "stage waits" : "stage");
    const stage = status.stage;
    say(this.get("stage"), stage ? stage.text : "");
    say(this.get("detail"), stage ? stage.detail : "");
    show(this.get("stage-box"), stage);
    const bar = this.get("bar");
    const share = stage && stage.share !== null ? stage.share : status.share;
    if (share === null) bar.removeAttribute("value");
    else put(bar, "value", share.toFixed(4));
    show(bar, status.living && (share !== null || status.state !== "queued"));
    for (const [verb, on] of Object.entries(status.buttons)) {
      const button = root.querySelector(`[data-verb="${verb}"]`);
      if (button) show(button, on);
    }
    show(this.get("timing"), status.living);
    show(root.querySelector(".notice"), status.living);
    verdict(root, status.verdict);
    this.charts[0].named(status.axis);
    this.failure(status.failure, status.next);
    this.lines("plan", status.plan);
    this.lines("corrections", status.corrections);
    this.notes(status.notes);
    this.way(status.way);
    matrix(this, status.matrix);
    show(this.get("notes"), status.notes.length || status.corrections.length);
    show(this.get("plan-box"), status.plan.length);
    this.onward(status);
    this.own(status);
    this.leads(this.run);
  }

  /** Tags and note, read only here; what a run lacks that was opened from a file; and the way into a file. */
  own({ own, kept, living }) {
    this.kept = kept;
    const told = { opened: own.opened, tags: own.tags.map((tag) => `#${tag}`).join("  "), note: own.note };
    for (const [name, text] of Object.entries(told)) {
      say(this.get(`own-${name}`), text);
      show(this.get(`own-${name}`), text);
    }
    show(this.get("save-file"), !living);
  }

  /** Try and Take home: beside a verdict, else in the head. One button stands out: to run again where that is proposed. */
  onward({ kept, living, verdict: became, next }) {
    show(this.get("next"), kept && !became);
    show(this.get("take"), !living);
    for (const name of ["verdict-try", "verdict-take"]) show(this.get(name), kept);
    put(this.get("verdict-try"), "class", AGAIN.has(next.verb) ? "push" : "push primary");
  }

  /** Cause and cure, and the button for it; where that is to run again, Resume is not the primary button. */
  failure(failure, next) {
    const again = AGAIN.has(next.verb);
    show(this.get("failure"), failure);
    if (failure) fields(this.root, { cause: failure.message, cure: failure.hint });
    for (const name of AGAINS) {
      const does = this.get(name);
      show(does, again);
      say(does, next.words);
      put(does, "data-does", next.verb);
    }
    put(this.root.querySelector('[data-verb="resume"]'), "class", again ? "push" : "push primary");
  }

  notes(notes) {
    const create = () => make("li", {}, make("span"), make("p", { class: "words" }), make("code"));
    list(this.get("note-list"), notes, create, (item, [text, hint]) => {
      const command = COMMAND.test(hint);
      say(item.children[0], text);
      say(item.children[1], command ? "" : hint);
      say(item.children[2], command ? hint : "");
      show(item.children[1], hint && !command);
      show(item.children[2], command);
    });
  }

  /** Answers on the way: a list a question, the newest answer first. */
  way(questions) {
    const { way } = this.words;
    show(this.get("way"), questions.length);
    const create = () => {
      const answers = make("ol", { class: "way-answers" });
      const right = make("div", { class: "way-right" }, make("b", {}, way.right), make("p"));
      return make("section", { class: "way-question" }, make("h3"), make("p", { class: "question" }), right,
        make("div", { class: "scroll-y", tabindex: 0, role: "region" }, answers), make("p", { class: "hint" }));
    };
    list(this.get("questions"), questions, create, (box, { prompt, right, answers, cost }, index) => {
      const [title, asked, wanted, scroll, paid] = box.children;
      say(title, way.question.replace("{number}", index + 1));
      put(scroll, "aria-label", title.textContent);
      say(asked, prompt);
      say(wanted.lastElementChild, right);
      show(wanted, right);
      say(paid, cost);
      list(scroll.firstElementChild, answers, () => make("li", {}, make("b"), make("p")), (item, [when, text]) => {
        say(item.firstElementChild, when);
        say(item.lastElementChild, text.trim() || way.nothing);
      });
    });
  }

  /** Lists that follow their end. An unchanged one is not measured, which would lay the page out. */
  lines(name, lines) {
    const words = lines.join("\n");
    if (this.said[name] === words) return;
    this.said[name] = words;
    const rows = this.get(name);
    const box = rows.parentElement;
    const follow = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
    list(rows, lines, () => make("li"), (item, line) => say(item, line));
    if (follow) box.scrollTop = box.scrollHeight;
  }

  async command(verb) {
    const chosen = verb === "stop" ? await choose(this.get("stop-dialog")) : verb;
    if (!chosen) return;
    await this.attempt(async () => {
      const { go } = await ask(`/studio/run/${encodeURIComponent(this.run)}/${chosen}`, {});
      if (go) return location.assign(go);
      this.living = true;
      await this.turn();
    });
  }
}

/** Puts the newly sent buckets behind those that we have; the bucket at `begin` is replaced, since it was still filling. */
function merge(have, got) {
  let keep = have.steps.findIndex((step) => step >= got.begin);
  if (keep < 0) keep = have.steps.length;
  const join = (old, fresh) => {
    const joined = {};
    for (const name of new Set([...Object.keys(old), ...Object.keys(fresh)])) {
      const before = old[name] ?? blank(keep);
      const after = fresh[name] ?? blank(got.steps.length);
      joined[name] = { low: before.low.slice(0, keep).concat(after.low), high: before.high.slice(0, keep).concat(after.high ?? after.low) };
    }
    return joined;
  };
  const steps = have.steps.slice(0, keep).concat(got.steps);
  return {
    shape: got.shape,
    steps,
    raw: join(have.raw, got.raw),
    smooth: middles(join(have.smooth, got.smooth)),
    points: { evaluation: got.evaluations, ...Object.fromEntries(Object.entries(got.measured).map(([name, points]) => [`held_out_${name}`, points])) },
    last: got.last,
    best: got.best,
    marks: got.marks,
    forecast: got.forecast,
    first: got.first,
    since: got.since,
    begin: got.first,
    until: got.until,
  };
}

/** A smoothed series is drawn as one line, through the middle of each bucket. */
function middles(columns) {
  for (const column of Object.values(columns)) column.middle = column.low.map((low, index) => (low === null ? null : (low + column.high[index]) / 2));
  return columns;
}

function blank(count) {
  const nothing = Array(count).fill(null);
  return { low: nothing, high: nothing };
}
