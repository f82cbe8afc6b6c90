/* One export of a run: its progress, its checks, how it is used, and its way to the hub. */

import { copied, list, make, put, say, show, state, told } from "../../dom.js";
import { Sending } from "./sending.js";

export class Job {
  /** `page` stops it and is told of faults; `job` is as the server told of it. */
  constructor(page, job) {
    const words = this.words = page.words;
    this.path = make("code", { class: "path" });
    const copying = make("button", { type: "button", onclick: () => copied(copying, this.path.textContent, words) }, words.copy);
    const stop = make("button", { type: "button", class: "quiet", onclick: () => page.stop(job.name), "aria-label": `${words.stop}: ${job.title}` }, words.stop);
    this.head = make("div", { class: "job-head" }, make("h3", {}, job.title), state());
    this.sentence = make("p", { class: "job-words" });
    this.bar = make("progress", { max: 1, "aria-label": words.progress });
    this.checks = make("ul", { class: "checks" });
    this.warnings = make("div", { class: "warnings" });
    this.where = make("p", { class: "job-path" }, this.path, copying);
    this.ending = make("p", {}, stop);
    this.uses = make("details", { class: "run-more" }, make("summary", {}, words.uses), make("div", { class: "uses" }));
    this.sending = new Sending(page, job.name);
    this.root = make("li", { class: "job" }, this.head, this.sentence, this.bar, this.checks, this.warnings, this.where, this.ending, this.uses, this.sending.root);
  }

  tell(job) {
    told(this.head.lastElementChild, job.tone, job.word);
    say(this.sentence, job.sentence);
    show(this.bar, job.living);
    show(this.ending, job.living);
    if (job.share === null) this.bar.removeAttribute("value");
    else put(this.bar, "value", job.share);
    list(this.checks, job.checks, () => make("li"), say);
    show(this.checks, job.checks.length);
    list(this.warnings, job.warnings, () => make("p", { class: "fault-line", role: "alert" }), say);
    show(this.where, job.path);
    say(this.path, job.path);
    list(this.uses.lastElementChild, job.uses, () => this.use(), (use, runtime) => this.tellUse(use, runtime));
    show(this.uses, job.uses.length);
    if (this.watched && job.uses.length) this.uses.open = true; // it has just been done
    this.watched = job.living;
    show(this.sending.root, job.hub);
  }

  /** One runtime: its name, the button that copies its lines, and the lines. */
  use() {
    const lines = make("pre", { tabindex: 0, role: "region" });
    const copying = make("button", { type: "button", class: "quiet", onclick: () => copied(copying, lines.textContent, this.words) }, this.words.copy);
    return make("div", { class: "use" }, make("div", { class: "use-head" }, make("h4"), copying), make("p", { class: "hint" }), lines);
  }

  tellUse(use, { title, about, code }) {
    const [head, words, lines] = use.children;
    say(head.firstElementChild, title);
    put(head.lastElementChild, "aria-label", `${this.words.copy}: ${title}`);
    say(words, about);
    show(words, about);
    say(lines, code);
    put(lines, "aria-label", this.words.lines.replace("{title}", title));
  }
}
