/* The try page: one prompt to the original and to the finetuned model, both answers streamed side by side. */

import { asks, exchange, settings } from "../answers.js";
import { ask, stream } from "../ask.js";
import { say, show, verdict } from "../dom.js";
import { Page } from "../page.js";

export function page(root, words) {
  return new TryIt(root, words);
}

class TryIt extends Page {
  constructor(root, words) {
    super(root, words);
    this.row = null;
    this.at = -1;
    asks(this, this.get("form"), (prompt, signal) => this.send(prompt, signal));
    this.get("prompt").addEventListener("input", () => this.forget());
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
    this.offerCheckpoints(facts.checkpoints);
    verdict(this.root, facts.verdict);
    say(this.get("busy-card"), facts.living ? this.words.living : "");
    show(this.get("busy-card"), facts.living);
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
      say(this.get("row-chosen"), row.words);
      show(this.get("row-chosen"), true);
    });
  }

  async send(prompt, signal) {
    const { row, words } = this;
    const run = this.get("run").value;
    const columns = ["base", "tuned"].map((side) => ({ key: side, kind: side, title: words[side] }));
    if (row?.answer) columns.push({ kind: "right", title: words.right, text: row.answer });
    const card = exchange(this.get("answers"), prompt, columns, words);
    try {
      await this.facts(run);
      const messages = row ? row.messages : [{ role: "user", content: prompt }];
      const question = { run, checkpoint: this.get("checkpoint").value, messages, ...settings(this) };
      await stream("/studio/ask", question, (line) => this.heard(card, line), signal);
    } finally {
      card.finish();
    }
  }

  heard(card, line) {
    if (line.fault) this.fault(line.fault);
    else if (line.side) card.add(line.side, line);
    else if (line.note) card.note(line.note);
  }
}
