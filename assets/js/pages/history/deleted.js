/* The runs that were just deleted, each with its way back for as long as there is one. */

import { keyed, make, put, say } from "../../dom.js";

export class Deleted {
  /** `page`: {words, get(name), restore(run)}. */
  constructor(page) {
    Object.assign(this, { page, items: new Map(), runs: [] });
    setInterval(() => this.draw(), 1000);
  }

  take(runs) {
    const now = performance.now();
    this.runs = runs.map((run) => ({ ...run, until: now + 1000 * run.left }));
    this.draw();
  }

  draw() {
    const { page } = this;
    const now = performance.now();
    this.runs = this.runs.filter((run) => run.until > now);
    keyed(page.get("deleted"), this.items, this.runs, (run) => this.item(run), (item, run) => {
      say(item.words, page.words.deleted.replace("{title}", run.title));
      put(item.undo, "aria-label", page.words["undo.label"].replace("{title}", run.title));
      say(item.undo, page.words.undo.replace("{seconds}", Math.ceil((run.until - now) / 1000)));
    });
  }

  item(run) {
    const item = { words: make("span"), undo: make("button", { type: "button", class: "push", onclick: () => this.page.restore(run) }) };
    item.root = make("li", {}, item.words, item.undo);
    return item;
  }

  /** The keyboard goes to the way back of the run that was deleted last. */
  focus(id) {
    this.items.get(id)?.undo.focus();
  }
}
