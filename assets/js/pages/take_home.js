/* The take-home page: which run, which checkpoint, which form; then the export's progress and where it lies. */

import { ask } from "../ask.js";
import { copied, fields, keyed, list, make, put, quoted, say, show, verdict } from "../dom.js";
import { Page } from "../page.js";
import { Job } from "./take_home/job.js";

const USUAL = "q4_k_m";
const PLAIN = "original";
/** How an option's field is read. */
const READ = { quantisation: (field) => field.value, importance: (field) => field.checked, weights: (field) => field.value };

export function page(root, words) {
  return new TakeHome(root, words);
}

class TakeHome extends Page {
  constructor(root, words) {
    super(root, words);
    this.living = false;
    this.filled = "";
    this.kept = new Map();
    this.get("form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    this.get("form").addEventListener("change", () => this.suggest());
    this.get("run").addEventListener("change", () => { this.filled = ""; this.turn(); });
    for (const button of root.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copied(button, this.get(button.dataset.copy).textContent, words));
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
    for (const form of facts.forms) fields(this.root, { [`size-${form.key}`]: this.kind(form).size, [`for-${form.key}`]: form.use });
    this.offerForms(facts.forms.map((form) => form.key));
    this.offerOptions();
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

  /** The form that is chosen, as the server told of it. */
  get form() {
    const key = this.get("form").querySelector('input[name="form"]:checked').value;
    return this.facts.forms.find((form) => form.key === key);
  }

  /** What the chosen form asks besides, and what is missing for it. */
  offerOptions() {
    const form = this.form;
    for (const name of Object.keys(READ)) show(this.get(`option-${name}`), form.options.includes(name));
    show(this.get("options"), form.options.length);
    if (form.kinds.length) {
      const select = this.get("quantisation");
      const chosen = this.kind(form).name;
      list(select, form.kinds, () => make("option"), (option, kind) => { put(option, "value", kind.name); say(option, kind.title); });
      select.value = chosen;
      say(this.get("kind-use"), this.kind(form).use);
      say(this.get(`size-${form.key}`), this.kind(form).size);
    }
    show(this.get("missing"), form.missing);
    fields(this.root, { "missing-words": form.missing, install: form.install });
  }

  /** The quantisation of a form that is chosen; of a form without any, the form. */
  kind(form) {
    const chosen = this.get("quantisation").value || USUAL;
    return form.kinds.find((kind) => kind.name === chosen) ?? form;
  }

  /** A name that is not taken yet, and the command that does the same. */
  suggest() {
    if (!this.facts) return;
    this.offerOptions();
    const { key, options, missing, kinds } = this.form;
    const asked = Object.fromEntries(options.map((name) => [name, READ[name](this.get(name))]));
    const plain = kinds.length ? `${key}-${asked.quantisation}` : key;
    const taken = new Set(this.facts.jobs.map((job) => job.name));
    let name = plain;
    for (let count = 2; taken.has(name); count += 1) name = `${plain}-${count}`;
    put(this.get("name"), "placeholder", name);
    if (!this.sending) this.get("send").disabled = Boolean(missing) || !this.kind(this.form).room;
    const request = { form: key, name: this.get("name").value.trim() || name, checkpoint: this.get("checkpoint").value, ...asked };
    const told = Object.entries(asked).filter(([, value]) => value && value !== PLAIN).map(([option, value]) => (value === true ? ` --${option}` : ` --${option} ${value}`));
    say(this.get("command"), `${this.facts.command} --form ${key}${told.join("")} --checkpoint ${request.checkpoint} --name ${quoted(request.name)}`);
    return request;
  }

  jobs(jobs) {
    show(this.get("jobs-box"), jobs.length);
    const named = jobs.map((job) => ({ ...job, id: `${this.filled}/${job.name}` }));
    keyed(this.get("jobs"), this.kept, named, (job) => new Job(this, job), (row, job) => row.tell(job));
    const done = named.find((job) => job.uses.length);
    if (!done || this.opened === this.filled) return;
    this.opened = this.filled; // the newest that is done, once for each run
    this.kept.get(done.id).uses.open = true;
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
}
