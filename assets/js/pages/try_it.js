/* The try page: which run and checkpoint is asked, what stands of it, held-out rows; a conversation (try_it/chat.js), or
   texts for a model that gives scores (try_it/scores.js). */

import { asks } from "../answers.js";
import { ask } from "../ask.js";
import { fields, put, say, show, verdict } from "../dom.js";
import { Page } from "../page.js";
import { Chat } from "./try_it/chat.js";
import { Loading } from "./try_it/loading.js";
import { Scores } from "./try_it/scores.js";

export function page(root, words) {
  return new TryIt(root, words);
}

class TryIt extends Page {
  constructor(root, words) {
    super(root, words);
    Object.assign(this, { row: null, at: -1, asked: {}, about: { base: "", system: "" }, living: false, busy: false, heldOutRows: 0 });
    this.loading = new Loading(this);
    this.chat = new Chat(this);
    this.scores = new Scores(this);
    this.go = asks(this, this.get("form"), (prompt, signal) => this.mode.send(prompt, signal), (busy) => this.worked(busy));
    for (const name of ["prompt", "second"]) this.get(name).addEventListener("input", () => { this.grow(); if (this.asked.scores) this.take(null, false); });
    this.get("run").addEventListener("change", () => this.attempt(() => this.changed()));
    this.get("checkpoint").addEventListener("change", () => this.warm());
    this.get("row-next").addEventListener("click", () => this.heldOut(this.at + 1));
    this.get("row-before").addEventListener("click", () => this.heldOut(this.at - 1));
    this.attempt(async () => { if (await this.offerRuns()) await this.changed(); }).then(() => { if (!root.dataset.mode) put(root, "data-mode", "chat"); });
  }

  get mode() {
    return this.asked.scores ? this.scores : this.chat;
  }

  /** Another run: its checkpoints, its conversation, and whether it has rows that it never saw. */
  async changed() {
    this.go.stop();
    this.at = -1;
    this.take(null);
    const run = this.get("run").value;
    this.names(run);
    await this.facts(run);
    if (run !== this.get("run").value) return;
    this.mode.open(run);
    put(this.root, "data-mode", this.asked.scores ? "scores" : "chat");
    this.warm();
  }

  /** What stands of a run now: it may have begun or ended to train since it was last looked at. */
  async facts(run) {
    const [facts, about] = await Promise.all(["keep", "chat"].map((what) => ask(`/studio/run/${encodeURIComponent(run)}/${what}`)));
    if (run !== this.get("run").value) return;
    const { words } = this;
    const { asked, living } = facts;
    Object.assign(this, { asked, about, living, heldOutRows: facts.held_out });
    this.offerCheckpoints(facts.checkpoints);
    verdict(this.root, facts.verdict);
    say(this.get("busy-card"), words[asked.second ? "living.two" : asked.scores ? "living.scores" : "living"].replace("{device}", about.device));
    show(this.get("busy-card"), living);
    show(this.get("held"), about.held && !living);
    say(this.get("held-words"), about.held);
    show(this.get("streamed"), about.streamed);
    say(this.get("streamed"), about.streamed);
    put(this.get("held-ask"), "href", `/try?run=${encodeURIComponent(about.holder)}`);
    fields(this.root, { about: asked.about || words.about, "prompt-name": asked.scores ? asked.prompt : words.ask, "second-name": asked.second, send: asked.scores ? words["send.scores"] : words.send });
    put(this.get("prompt"), "placeholder", asked.scores ? "" : words.ask);
    show(this.get("second-box"), asked.second);
    for (const name of ["how", "chat-row"]) show(this.get(name), !asked.scores && !living);
    if (asked.scores) for (const name of ["empty", "tally", "over-box"]) show(this.get(name), false);
    this.get("checkpoint").disabled = living;
    show(this.get("rows"), facts.held_out > 0);
    say(this.get("row-words"), facts.held_out_words);
  }

  /** Loads the model before it is asked. */
  warm() {
    if (!this.living && !this.about.held) this.loading.warm(this.get("run").value, this.get("checkpoint").value, this.about.base);
  }

  /** Takes a held-out row's question, or none. */
  take(row, filled = true) {
    this.row = row;
    if (filled && row) for (const name of ["prompt", "second"]) this.get(name).value = row[name];
    say(this.get("row-chosen"), row?.words);
    show(this.get("row-chosen"), row);
    this.grow();
  }

  heldOutRow(at) {
    return ask(`/studio/run/${encodeURIComponent(this.get("run").value)}/held-out?at=${at}`);
  }

  /** Puts a held-out row's question into the box; its reference answer is shown beside the others. */
  heldOut(at) {
    return this.attempt(async () => {
      const row = await this.heldOutRow(at);
      this.at = row.at;
      this.take(row);
      this.get("prompt").focus();
    });
  }

  /** An answer is being given, or no more. */
  worked(busy) {
    this.busy = busy;
    if (!this.asked.scores) this.chat.update();
    if (!busy && matchMedia("(pointer: fine)").matches && [document.body, this.get("send"), this.get("cancel")].includes(document.activeElement)) this.get("prompt").focus({ preventScroll: true });
  }

  /** The field is as high as what stands in it, up to a third of the window. */
  grow() {
    const field = this.get("prompt");
    field.style.height = "";
    field.style.height = `${Math.min(field.scrollHeight + 2, innerHeight / 3)}px`;
  }
}
