/* A conversation with several models at once: every column goes on from its own answers. A held-out row begins a new one. */

import { settings } from "../../answers.js";
import { ask, stream } from "../../ask.js";
import { make, say, show } from "../../dom.js";
import { Columns } from "./columns.js";
import { conversation, keep } from "./kept.js";
import { TurnView } from "./turn.js";

const FIELDS = ["temperature", "top_p", "length", "seed", "stop"];
const SUGGESTED = 3;
const WARM = 0.7;

export class Chat {
  constructor(page) {
    Object.assign(this, { page, turns: [], tally: {}, views: new Map(), loaded: "" });
    this.columns = new Columns(page, () => this.changed());
    for (const name of [...FIELDS, "system", "blind"]) page.get(name).addEventListener("change", () => this.changed());
    page.get("over").addEventListener("click", () => this.over());
    page.get("tally-clear").addEventListener("click", () => { delete this.tally[this.pair()]; this.changed(); });
  }

  /** Another run: its conversation as it was left. */
  open(run) {
    const { page } = this;
    const { turns = [], columns, tally = {}, fields = {}, blind = false } = conversation(run);
    Object.assign(this, { run, turns, tally, loaded: page.about.base });
    for (const name of FIELDS) page.get(name).value = fields[name] ?? page.get(name).defaultValue;
    page.get("system").value = fields.system ?? page.about.system;
    page.get("blind").checked = blind;
    this.columns.open(columns);
    try {
      this.redraw();
    } catch { // kept by another version of this page
      this.turns = [];
      this.redraw();
    }
    this.follow();
    this.suggest();
  }

  redraw() {
    this.views = new Map(this.turns.map((turn) => [turn, new TurnView(this, turn)]));
    this.page.get("answers").replaceChildren(...[...this.views.values()].map((view) => view.root));
    this.controls();
  }

  /** Something that is kept has changed. */
  changed() {
    const { page, turns, tally } = this;
    const fields = Object.fromEntries(FIELDS.map((name) => [name, page.get(name).value]));
    if (page.get("system").value !== page.about.system) fields.system = page.get("system").value;
    keep(this.run, { turns, tally, fields, columns: this.columns.kept(), blind: page.get("blind").checked });
    this.controls();
  }

  controls() {
    const { page, turns } = this;
    const { words } = page;
    const two = this.columns.list.length === 2;
    page.get("blind").disabled = !two || page.living;
    say(page.get("blind-about"), two ? words["blind.about"] : words["blind.two"]);
    show(page.get("over-box"), turns.length);
    page.get("over").disabled = page.busy;
    show(page.get("empty"), !turns.length);
    const { wins = {}, same = 0, titles = {} } = this.tally[this.pair()] ?? {};
    const [first, second] = Object.keys(titles);
    show(page.get("tally"), first);
    if (!first) return;
    const told = { first: titles[first], second: titles[second], wins: wins[first] ?? 0, losses: wins[second] ?? 0, same };
    say(page.get("tally-words"), words.tally.replace(/\{(\w+)\}/g, (_, name) => told[name]));
  }

  over() {
    this.turns = [];
    this.redraw();
    this.changed();
    this.page.get("prompt").focus();
    this.suggest();
  }

  /** Three held-out questions to begin with, far apart in the file. */
  async suggest() {
    const { page, run } = this;
    const count = Math.min(SUGGESTED, page.heldOutRows);
    say(page.get("empty-words"), count ? page.words.empty : page.words["empty.none"]);
    if (this.turns.length || this.suggested === run) return;
    this.suggested = run;
    page.get("suggested").replaceChildren();
    const at = (index) => Math.floor((index * page.heldOutRows) / count);
    const rows = await Promise.all([...Array(count).keys()].map((index) => page.heldOutRow(at(index)).catch(() => null)));
    if (run !== this.run) return;
    const begin = (row) => { if (!page.busy) { page.take(row); page.get("form").requestSubmit(); } };
    page.get("suggested").replaceChildren(...rows.filter((row) => row?.prompt).map((row) => make("li", {}, make("button", { type: "button", class: "push", onclick: () => begin(row) }, row.prompt))));
  }

  // ── asking ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  async send(prompt, signal) {
    const { page } = this;
    const { row } = page;
    page.get("prompt").value = "";
    page.take(null);
    await page.facts(this.run);
    const asked = row && row.prompt.trim() === prompt ? row : null;
    const context = asked ? asked.messages.slice(0, -1) : page.living || !this.turns.length ? [] : null;
    const kept = asked?.answer ? { answer: asked.answer, words: asked.words } : null;
    await this.begin({ question: asked ? asked.prompt : prompt, role: asked?.messages.at(-1)?.role ?? "user", context, row: kept }, signal);
  }

  /** A new turn, answered by every column; by the run itself while it trains. */
  async begin(turn, signal) {
    const { page } = this;
    const { living } = page;
    const columns = living ? ["base", "tuned"].map((side) => this.columns.main(side)) : this.columns.list;
    const order = columns.map(({ key }) => key);
    const blind = page.get("blind").checked && order.length === 2 && !living;
    if (blind && Math.random() < 0.5) order.reverse();
    Object.assign(turn, { order, blind, vote: "", answers: {} });
    for (const { key, title } of columns) turn.answers[key] = { title, tone: this.columns.tone(key), text: "" };
    this.turns.push(turn);
    const view = new TurnView(this, turn);
    this.views.set(turn, view);
    page.get("answers").append(view.root);
    this.update();
    this.follow();
    await this.answered(turn, columns, signal);
  }

  /** Asks these columns one after another, first those over the model that is loaded; in a blind test as they stand. */
  async answered(turn, columns, signal, how = {}) {
    const { page } = this;
    const mine = (one) => (turn.blind ? turn.order.indexOf(one.key) : Number(one.base !== this.loaded));
    try {
      await page.loading.ready;
      if (page.living) await this.stream(turn, columns, signal, { ...settings(page), temperature: 0 });
      else for (const column of [...columns].sort((a, b) => mine(a) - mine(b))) await this.stream(turn, [column], signal, { ...settings(page), ...how });
      await this.check(turn);
    } finally {
      for (const { key } of columns) turn.answers[key].stopped = !turn.answers[key].done && !turn.answers[key].fault;
      page.loading.end();
      this.changed();
    }
  }

  async stream(turn, columns, signal, how) {
    const { page } = this;
    const { words } = page;
    const [{ run, checkpoint, base }] = columns;
    if (how.temperature) for (const { key } of columns) turn.answers[key].how = words.how.replace("{temperature}", how.temperature).replace("{seed}", how.seed);
    const keyOf = (side) => columns.find((one) => one.side === side)?.key;
    const failed = (text) => { for (const { key } of columns) if (!turn.answers[key].done) turn.answers[key].fault = text; };
    const heard = (line) => {
      if (signal.aborted || page.loading.heard(line, base)) return;
      this.loaded = base;
      const key = keyOf(line.side);
      if (line.fault) failed(line.fault);
      else if (key) this.grown(turn, key, line);
      else if (line.note) say(page.get("said"), line.note);
    };
    try {
      await stream("/studio/ask", { run, checkpoint, sides: columns.map(({ side }) => side), ...this.asked(turn, columns[0].key), ...how }, heard, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      failed(error.message || words.away); // the others are asked all the same
    }
    const view = this.views.get(turn);
    for (const { key } of columns) {
      view.update(key);
      say(page.get("said"), this.spoken(view, turn.answers[key], key));
    }
  }

  grown(turn, key, { text, done }) {
    Object.assign(turn.answers[key], { text, done });
    this.following(() => this.views.get(turn).update(key));
  }

  /** What is read aloud: a whole answer, once. */
  spoken(view, { text, fault }, key) {
    const { words } = this.page;
    return fault ? `${words["said.fault"].replace("{who}", view.title(key))} ${fault}` : words.said.replace("{who}", view.title(key)).replace("{text}", text);
  }

  /** The conversation up to this question, as this column led it, behind the system prompt that was set. */
  asked(turn, key) {
    const { page, turns } = this;
    const at = turns.indexOf(turn);
    let first = at;
    while (first > 0 && !turns[first].context) first -= 1;
    const led = turns.slice(first, at).filter(({ answers }) => answers[key]?.text)
      .flatMap(({ question, role, answers }) => [{ role, content: question }, { role: "assistant", content: answers[key].text }]);
    const messages = [...(turns[first].context ?? []), ...led, { role: turn.role, content: turn.question }];
    const system = page.get("system").value.trim();
    if (system === page.about.system.trim()) return { messages };
    const others = messages.filter(({ role }) => role !== "system");
    return system ? { messages: [{ role: "system", content: system }, ...others] } : { messages: others, plain: true };
  }

  /** The report's checks on the answers to a held-out row. */
  async check(turn) {
    const { page } = this;
    const answers = Object.values(turn.answers).filter(({ text, done }) => text && done);
    if (!turn.row || !page.about.checks || !answers.length) return;
    const marks = await ask(`/studio/run/${encodeURIComponent(this.run)}/checks`, { reference: turn.row.answer, answers: answers.map(({ text }) => text) });
    answers.forEach((answer, index) => { answer.marks = marks[index]; });
  }

  /** One answer once more, with the next seed; one that is always the same is drawn. */
  retry(turn, key) {
    const { page } = this;
    const { tries = 0, title, tone } = turn.answers[key];
    const now = settings(page);
    const again = { temperature: now.temperature || WARM, seed: now.seed + tries + 1 };
    turn.answers[key] = { title, tone, text: "", tries: tries + 1 };
    page.go((signal) => { this.update(); return this.answered(turn, [this.columns.of(key)], signal, again); });
  }

  /** Another question in place of one: what came after it goes. */
  edited(turn, question) {
    const { context, role } = turn;
    this.turns = this.turns.slice(0, this.turns.indexOf(turn));
    this.redraw();
    this.page.go((signal) => this.begin({ question, role, context, row: null }, signal));
  }

  // ── the blind test ─────────────────────────────────────────────────────────────────────────────────────────────────

  pair() {
    return this.columns.list.map(({ key }) => key).sort().join("|");
  }

  vote(turn, vote) {
    const key = [...turn.order].sort().join("|");
    const { wins = {}, same = 0 } = this.tally[key] ?? {};
    const titles = Object.fromEntries([...turn.order].sort().reverse().map((one) => [one, turn.answers[one].title]));
    turn.vote = vote;
    this.tally[key] = vote === "same" ? { wins, same: same + 1, titles } : { wins: { ...wins, [vote]: (wins[vote] ?? 0) + 1 }, same, titles };
    this.update();
    this.changed();
    this.page.get("prompt").focus();
  }

  // ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────────

  isLast(turn) {
    return this.turns.at(-1) === turn;
  }

  update() {
    this.following(() => { for (const view of this.views.values()) view.update(); });
    this.controls();
  }

  /** Changes what is shown; where the end of the page was in sight it stays so. */
  following(change) {
    const near = innerHeight + scrollY > document.documentElement.scrollHeight - 120;
    change();
    if (near) this.follow();
  }

  /** Shows the end of the conversation. */
  follow() {
    if (this.turns.length) scrollTo(0, document.documentElement.scrollHeight);
  }
}
