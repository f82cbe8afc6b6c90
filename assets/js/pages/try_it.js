/* The try page: one prompt to the original and to the finetuned model, both answers streamed side by side; or a text, or
   two, to a model that gives scores, which only the finetuned one has. */

import { asks, exchange, settings } from "../answers.js";
import { ask, stream } from "../ask.js";
import { fields, say, show, verdict } from "../dom.js";
import { Page } from "../page.js";

export function page(root, words) {
  return new TryIt(root, words);
}

class TryIt extends Page {
  constructor(root, words) {
    super(root, words);
    this.row = null;
    this.at = -1;
    this.asked = {};
    asks(this, this.get("form"), (prompt, signal) => this.send(prompt, signal));
    for (const name of ["prompt", "second"]) this.get(name).addEventListener("input", () => this.forget());
    this.get("run").addEventListener("change", () => this.attempt(() => this.changed()));
    this.get("row-next").addEventListener("click", () => this.heldOut(this.at + 1));
    this.get("row-before").addEventListener("click", () => this.heldOut(this.at - 1));
    this.attempt(async () => { if (await this.offerRuns()) await this.changed(); });
  }

  /** Another run: its checkpoints, and whether it has rows that it never saw. */
  async changed() {
    this.at = -1;
    this.forget();
    this.names(this.get("run").value);
    await this.facts(this.get("run").value);
  }

  /** What stands of a run now: it may have begun or ended to train since it was last looked at. */
  async facts(run) {
    const facts = await ask(`/studio/run/${encodeURIComponent(run)}/keep`);
    if (run !== this.get("run").value) return;
    const { asked, living } = facts;
    const { words } = this;
    this.asked = asked;
    this.offerCheckpoints(facts.checkpoints);
    verdict(this.root, facts.verdict);
    say(this.get("busy-card"), asked.second ? words.living_two : asked.scores ? words.living_scores : words.living);
    show(this.get("busy-card"), living);
    fields(this.root, { title: asked.scores ? words.title_scores : words.title, about: asked.about || words.about, "prompt-name": asked.prompt, "second-name": asked.second, send: asked.scores ? words.ask_scores : words.ask });
    show(this.get("second-box"), asked.second);
    show(this.get("how"), !asked.scores);
    for (const name of ["checkpoint", "temperature", "seed"]) this.get(name).disabled = facts.living;
    show(this.get("rows"), facts.held_out > 0);
    say(this.get("row-words"), facts.held_out_words);
  }

  forget() {
    this.row = null;
    show(this.get("row-chosen"), false);
  }

  /** Puts a held-out row's prompt into the box; its right answer is shown beside the others. */
  heldOut(at) {
    return this.attempt(async () => {
      const row = await ask(`/studio/run/${encodeURIComponent(this.get("run").value)}/held-out?at=${at}`);
      this.at = row.at;
      this.row = row;
      this.get("prompt").value = row.prompt;
      this.get("second").value = row.second;
      say(this.get("row-chosen"), row.words);
      show(this.get("row-chosen"), true);
    });
  }

  async send(prompt, signal) {
    const { row, words, asked } = this;
    const run = this.get("run").value;
    const second = asked.second ? this.get("second").value.trim() : "";
    const card = exchange(this.get("answers"), asked.kind === "label" && second ? `${prompt}\n\n${second}` : prompt, this.columns(second), words);
    try {
      await this.facts(run);
      const before = row ? row.messages : [{ role: "user", content: prompt }];
      const asks = asked.kind === "answer" ? this.answers(second).map(([key, text]) => [key, { messages: [...before, { role: "assistant", content: text }] }])
        : [["", asked.kind ? { messages: [{ role: "user", content: prompt }], second } : { messages: before }]];
      const sides = asked.scores ? ["tuned"] : ["base", "tuned"];
      for (const [key, what] of asks)
        await stream("/studio/ask", { run, checkpoint: this.get("checkpoint").value, sides, ...what, ...settings(this) }, (line) => this.heard(card, line, key), signal);
    } finally {
      card.finish();
    }
  }

  /** The answers that a reward model is to score: the one that is written, and of a held-out pair both. */
  answers(second) {
    return this.row ? [["tuned", this.row.answer], ["rejected", this.row.rejected]] : [["tuned", second]];
  }

  columns(second) {
    const { row, words, asked } = this;
    if (asked.kind === "answer") return this.answers(second).map(([key, text]) => ({ key, kind: key, title: `${row ? words[key === "tuned" ? "chosen" : key] : words.tuned}: ${text}` }));
    const columns = (asked.scores ? ["tuned"] : ["base", "tuned"]).map((side) => ({ key: side, kind: side, title: words[side] }));
    return row?.answer ? [...columns, { kind: "right", title: asked.scores ? words.right_label : words.right, text: row.answer }] : columns;
  }

  heard(card, line, key) {
    if (line.fault) this.fault(line.fault);
    else if (line.side) card.add(key || line.side, line);
    else if (line.note) card.note(line.note);
  }
}
