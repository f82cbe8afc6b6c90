/* A model that gives scores: a text, or two, and its probabilities as bars. The original has no head for them. */

import { exchange, settings } from "../../answers.js";
import { stream } from "../../ask.js";

export class Scores {
  constructor(page) {
    this.page = page;
  }

  open() {
    this.page.get("answers").replaceChildren();
  }

  async send(prompt, signal) {
    const { page } = this;
    const { row, asked } = page;
    const run = page.get("run").value;
    const second = asked.second ? page.get("second").value.trim() : "";
    const card = exchange(page.get("answers"), asked.kind === "label" && second ? `${prompt}\n\n${second}` : prompt, this.columns(second), page.words);
    try {
      await page.facts(run);
      await page.loading.ready;
      const before = row ? row.messages : [{ role: "user", content: prompt }];
      const asks = asked.kind === "answer" ? this.answers(second).map(([key, text]) => [key, { messages: [...before, { role: "assistant", content: text }] }])
        : [["tuned", { messages: [{ role: "user", content: prompt }], second }]];
      for (const [key, what] of asks)
        await stream("/studio/ask", { run, checkpoint: page.get("checkpoint").value, sides: ["tuned"], ...what, ...settings(page) }, (line) => this.heard(card, line, key), signal);
    } finally {
      card.finish();
    }
  }

  /** The answers that a reward model is to score: the one that is written, and of a held-out pair both. */
  answers(second) {
    const { row } = this.page;
    return row ? [["tuned", row.answer], ["rejected", row.rejected]] : [["tuned", second]];
  }

  columns(second) {
    const { row, words, asked } = this.page;
    if (asked.kind === "answer") return this.answers(second).map(([key, text]) => ({ key, kind: key, title: `${row ? words[key === "tuned" ? "chosen" : key] : words.tuned}: ${text}` }));
    const columns = [{ key: "tuned", kind: "tuned", title: words.tuned }];
    return row?.answer ? [...columns, { kind: "right", title: words["right.label"], text: row.answer }] : columns;
  }

  heard(card, line, key) {
    const { page } = this;
    if (line.fault) page.fault(line.fault);
    else if (page.loading.heard(line, page.about.base)) return;
    else if (line.side) card.add(key, line);
    else if (line.note) card.note(line.note);
  }
}
