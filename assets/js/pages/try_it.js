/* The try page: one prompt to the original and to the finetuned model, both answers streamed side by side. */

import { ask, stream } from "../ask.js";
import { field, make, put, say, show, verdict } from "../dom.js";
import { offer } from "../runs.js";

const KEPT = 12;

export function page(root, words) {
  return new TryIt(root, words);
}

class TryIt {
  constructor(root, words) {
    Object.assign(this, { root, words, busy: null, row: null, at: -1 });
    this.get = (name) => field(root, name);
    this.get("form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    this.get("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.send(); } });
    this.get("prompt").addEventListener("input", () => this.forget());
    this.get("cancel").addEventListener("click", () => this.busy?.abort());
    this.get("run").addEventListener("change", () => this.changed().catch((error) => this.fault(error.message || this.words.away)));
    this.get("row-next").addEventListener("click", () => this.heldOut(this.at + 1));
    this.get("row-before").addEventListener("click", () => this.heldOut(this.at - 1));
    this.begin();
  }

  async begin() {
    try {
      const some = offer(this.get, await ask("/studio/runs"), this.words);
      if (some) await this.changed();
    } catch (error) {
      this.fault(error.message || this.words.away);
    }
  }

  /** Another run: its checkpoints, and whether it has rows that it never saw. */
  async changed() {
    this.at = -1;
    this.forget();
    const run = this.get("run").value;
    history.replaceState(history.state, "", `${location.pathname}?run=${encodeURIComponent(run)}`);
    this.fault("");
    await this.facts(run);
  }

  /** What stands of a run now: it may have begun or ended to train since it was last looked at. */
  async facts(run) {
    const facts = await ask(`/studio/run/${encodeURIComponent(run)}/keep`);
    if (run !== this.get("run").value) return;
    const select = this.get("checkpoint");
    const chosen = select.value;
    select.replaceChildren(...facts.checkpoints.map((item) => make("option", { value: item.name }, item.words)));
    if (facts.checkpoints.some((item) => item.name === chosen)) select.value = chosen;
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
  async heldOut(at) {
    this.fault("");
    try {
      const row = await ask(`/studio/run/${encodeURIComponent(this.get("run").value)}/held-out?at=${at}`);
      this.at = row.at;
      this.row = row;
      this.get("prompt").value = row.prompt;
      say(this.get("row-chosen"), row.words);
      show(this.get("row-chosen"), true);
    } catch (error) {
      this.fault(error.message || this.words.away);
    }
  }

  async send() {
    const prompt = this.get("prompt").value.trim();
    if (!prompt || this.busy) return;
    const card = this.card(prompt, this.row);
    this.fault("");
    this.busy = new AbortController();
    this.working(true);
    const run = this.get("run").value;
    const messages = this.row ? this.row.messages : [{ role: "user", content: prompt }];
    try {
      await this.facts(run);
      const question = {
        run,
        checkpoint: this.get("checkpoint").value,
        messages,
        max_new_tokens: Number(this.get("length").value) || 128,
        temperature: Number(this.get("temperature").value) || 0,
        seed: Number(this.get("seed").value) || 0,
      };
      await stream("/studio/ask", question, (line) => this.heard(card, line), this.busy.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.fault(error.message || this.words.away);
    } finally {
      card.finish();
      this.busy = null;
      this.working(false);
    }
  }

  heard(card, line) {
    if (line.fault) this.fault(line.fault);
    else if (line.side) card.add(line);
    else if (line.note) card.note(line.note);
  }

  working(on) {
    this.get("send").disabled = on;
    show(this.get("cancel"), on);
  }

  /** A new card on top of the earlier ones: the question, both answers and, for a held-out row, the right one. */
  card(prompt, row) {
    const { words } = this;
    const sides = {};
    const column = (side, label) => {
      const text = make("p", { class: "answer-text" }, words.waiting);
      put(text, "data-wait", "");
      sides[side] = text;
      return make("div", { class: `answer answer-${side}` }, make("h3", {}, label), text);
    };
    const right = row && row.answer ? make("div", { class: "answer answer-right" }, make("h3", {}, words.right), make("p", { class: "answer-text" }, row.answer)) : null;
    const note = make("p", { class: "answer-note" });
    const card = make("article", { class: "exchange" }, make("p", { class: "question" }, prompt), note, make("div", { class: "answers" }, column("base", words.base), column("tuned", words.tuned), right));
    const box = this.get("answers");
    box.prepend(card);
    while (box.children.length > KEPT) box.lastElementChild.remove();
    const settle = (text) => { if (text.hasAttribute("data-wait")) { text.removeAttribute("data-wait"); say(text, ""); } };
    return {
      add: ({ side, text, done }) => {
        const place = sides[side];
        settle(place);
        say(place, text);
        if (done) { put(place, "data-done", ""); if (!text) say(place, words.nothing); }
      },
      note: (text) => say(note, text),
      finish: () => Object.values(sides).forEach((text) => { if (text.hasAttribute("data-wait")) { settle(text); say(text, words.none); } }),
    };
  }

  fault(text) {
    say(this.get("fault"), text);
    show(this.get("fault"), text);
  }
}
