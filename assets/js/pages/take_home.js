/* The take-home page: which run, which checkpoint, which form; then the export's progress and where it lies. */

import { ask } from "../ask.js";
import { copy, fields, list, make, put, quoted, say, show, state, told, verdict } from "../dom.js";
import { Page } from "../page.js";

export function page(root, words) {
  return new TakeHome(root, words);
}

class TakeHome extends Page {
  constructor(root, words) {
    super(root, words);
    this.living = false;
    this.filled = "";
    this.get("form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    this.get("form").addEventListener("change", () => this.suggest());
    this.get("run").addEventListener("change", () => { this.filled = ""; this.turn(); });
    for (const button of root.querySelectorAll("[data-copy]")) button.addEventListener("click", () => this.copied(button));
    this.attempt(async () => { if (await this.offerRuns()) this.look(() => this.tick(), () => (this.living ? 1000 : 5000)); });
  }

  async tick() {
    const run = this.get("run").value;
    this.take(run, await ask(`/studio/run/${encodeURIComponent(run)}/keep`));
  }

  take(run, facts) {
    if (this.filled !== run) {
      this.filled = run;
      this.names(run);
      this.offerCheckpoints(facts.checkpoints);
    }
    this.facts = facts;
    verdict(this.root, facts.verdict);
    for (const form of facts.forms) fields(this.root, { [`size-${form.key}`]: form.size, [`for-${form.key}`]: form.use });
    this.offerForms(facts.forms.map((form) => form.key));
    say(this.get("disk"), facts.disk);
    this.living = facts.jobs.some((job) => job.living);
    this.suggest();
    this.jobs(facts.jobs);
  }

  /** The forms that this run can be taken home in; another run's choice gives way to the first. */
  offerForms(keys) {
    const choices = [...this.get("form").querySelectorAll('input[name="form"]')];
    for (const choice of choices) show(choice.closest("label"), keys.includes(choice.value));
    const chosen = choices.find((choice) => choice.checked);
    if (!keys.includes(chosen.value)) choices.find((choice) => choice.value === keys[0]).checked = true;
  }

  /** A name that is not taken yet, and the command that does the same. */
  suggest() {
    if (!this.facts) return;
    const form = this.get("form").querySelector('input[name="form"]:checked').value;
    const taken = new Set(this.facts.jobs.map((job) => job.name));
    let name = form;
    for (let count = 2; taken.has(name); count += 1) name = `${form}-${count}`;
    put(this.get("name"), "placeholder", name);
    if (!this.sending) this.get("send").disabled = !this.facts.forms.find((one) => one.key === form).room;
    const chosen = this.get("name").value.trim() || name;
    say(this.get("command"), `${this.facts.command} --form ${form} --checkpoint ${this.get("checkpoint").value} --name ${quoted(chosen)}`);
    return { form, name: chosen, checkpoint: this.get("checkpoint").value };
  }

  jobs(jobs) {
    show(this.get("jobs-box"), jobs.length);
    const create = () => {
      const path = make("code", { class: "path" });
      const button = make("button", { type: "button", onclick: () => this.copied(button, path.textContent) }, this.words.copy);
      const stop = make("button", { type: "button", class: "quiet", onclick: () => this.stop(stop.dataset.job) }, this.words.stop);
      return make("li", { class: "job" },
        make("div", { class: "job-head" }, make("h3"), state()),
        make("p", { class: "job-words" }), make("progress", { max: 1, "aria-label": this.words.progress }),
        make("ul", { class: "checks" }), make("div", { class: "warnings" }), make("p", { class: "job-path" }, path, button), make("p", {}, stop),
        make("details", { class: "run-more" }, make("summary", {}, this.words.python), make("pre", { tabindex: 0, role: "region", "aria-label": this.words.python })));
    };
    list(this.get("jobs"), jobs, create, (item, job) => {
      const [head, words, bar, checks, warnings, where, ending, python] = item.children;
      show(python, job.python);
      say(python.lastElementChild, job.python);
      show(ending, job.living);
      put(ending.firstElementChild, "data-job", job.name);
      put(ending.firstElementChild, "aria-label", `${this.words.stop}: ${job.title}`);
      say(head.children[0], job.title);
      told(head.children[1], job.tone, job.word);
      say(words, job.sentence);
      show(bar, job.living);
      if (job.share === null) bar.removeAttribute("value");
      else put(bar, "value", job.share);
      list(checks, job.checks, () => make("li"), (check, text) => say(check, text));
      show(checks, job.checks.length);
      list(warnings, job.warnings, () => make("p", { class: "fault-line", role: "alert" }), (warning, text) => say(warning, text));
      show(where, job.path);
      say(where.firstElementChild, job.path);
    });
  }

  async send() {
    const request = this.suggest();
    if (!request) return; // nothing is known of the run yet: the button comes alive with the first answer
    this.sending = true;
    this.get("send").disabled = true;
    await this.attempt(async () => {
      await ask(`/studio/run/${encodeURIComponent(this.filled)}/export`, request);
      this.get("name").value = "";
      this.living = true;
      await this.turn();
      this.get("jobs-box").scrollIntoView({ block: "nearest" });
    });
    this.sending = false;
    this.suggest();
  }

  stop(name) {
    return this.attempt(async () => {
      await ask(`/studio/run/${encodeURIComponent(this.filled)}/export/${encodeURIComponent(name)}/stop`, {});
      await this.turn();
    });
  }

  async copied(button, text) {
    const done = await copy(text ?? this.get(button.dataset.copy).textContent);
    say(button, done ? this.words.copied : this.words.not_copied);
    setTimeout(() => say(button, this.words.copy), 1600);
  }
}
