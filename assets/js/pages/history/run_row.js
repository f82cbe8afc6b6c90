/* One run in the history: what it is called, how it went, what went wrong and the button that does something about it. */

import { ask } from "../../ask.js";
import { copy, make, put, say, show, state, told } from "../../dom.js";

const FACTS = ["when", "took", "steps", "loss", "held_out", "method", "preset", "measured"];
const VERBS = ["resume", "rerun", "rename", "delete"];

export class Row {
  /** `page`: {words, command(run, verb, body), pick(id, on)}. */
  constructor(page, id) {
    Object.assign(this, { page, id, facts: {}, buttons: {} });
    const { words } = page;
    this.box = make("input", { type: "checkbox", onchange: () => page.pick(id, this.box.checked) });
    this.title = make("a", { class: "run-title" });
    this.state = state();
    this.verdict = make("p", { class: "run-verdict" });
    this.cause = make("strong");
    this.cure = make("p");
    this.next = make("button", { type: "button", class: "push", onclick: () => page.command(this.run, this.run.next) });
    this.failure = make("div", { class: "run-failure" }, make("div", {}, this.cause, this.cure), this.next);
    this.report = make("a", { class: "push quiet" }, words.report);
    const pick = make("label", { class: "run-pick" }, this.box, make("span", {}, words.pick));
    this.root = make("li", { class: "run" },
      make("div", { class: "run-head" }, this.title, this.state),
      make("dl", { class: "run-facts" }, ...FACTS.map((name) => this.fact(name))),
      this.verdict,
      this.failure,
      make("div", { class: "run-foot" }, make("div", { class: "run-buttons" }, pick, this.report, ...VERBS.map((verb) => this.button(verb))), this.settings()));
  }

  fact(name) {
    this.facts[name] = make("dd");
    return make("div", { class: `fact fact-${name}` }, make("dt", {}, this.page.words[name] ?? ""), this.facts[name]);
  }

  button(verb) {
    const work = verb === "rename" ? () => this.naming(true) : () => this.page.command(this.run, verb);
    this.buttons[verb] = make("button", { type: "button", class: verb === "delete" ? "quiet danger" : "quiet", onclick: work }, this.page.words[verb]);
    return this.buttons[verb];
  }

  /** The name's field, in the place of the title while it is written. */
  form() {
    const { words } = this.page;
    this.field = make("input", { type: "text", maxlength: 120, "aria-label": words.name, placeholder: words["name.hint"] });
    this.field.addEventListener("keydown", (event) => { if (event.key === "Escape") this.naming(false); });
    const back = make("button", { type: "button", class: "quiet", onclick: () => this.naming(false) }, words.cancel);
    const form = make("form", { class: "run-naming" }, this.field, make("button", { type: "submit", class: "quiet" }, words.save), back);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (await this.page.command(this.run, "rename", { name: this.field.value })) this.naming(false);
    });
    return form;
  }

  naming(on) {
    this.root.querySelector(".run-naming")?.remove();
    show(this.title, !on);
    if (!on) return this.buttons.rename.focus();
    this.title.after(this.form());
    this.field.value = this.run.name;
    this.field.select();
  }

  settings() {
    const { words } = this.page;
    this.yaml = make("pre", { tabindex: 0, role: "region" });
    this.line = make("code", { class: "path" });
    const copies = make("button", { type: "button", onclick: async () => { say(copies, (await copy(this.line.textContent)) ? words.copied : words.not_copied); } }, words.copy);
    this.download = make("a", { class: "push quiet", download: "" }, words.yaml);
    this.more = make("details", { class: "run-more", ontoggle: () => this.open() }, make("summary", {}, words.config),
      make("p", {}, words.repeat), make("p", { class: "job-path" }, this.line, copies), this.yaml, make("p", {}, this.download));
    return this.more;
  }

  update(run) {
    const { words } = this.page;
    this.run = run;
    say(this.title, run.title);
    put(this.yaml, "aria-label", `${words.config}: ${run.title}`);
    if (run.can.watch) put(this.title, "href", `/watch?run=${encodeURIComponent(run.id)}`);
    else this.title.removeAttribute("href");
    show(this.more, run.can.watch);
    this.box.closest("label").hidden = !run.can.watch;
    told(this.state, run.tone, run.word);
    for (const name of FACTS) say(this.facts[name], run[name]);
    say(this.facts.measured.previousSibling, words[`measure.${run.measure}`]);
    show(this.facts.measured.parentElement, run.measured);
    say(this.verdict, run.verdict);
    show(this.verdict, run.verdict);
    say(this.cause, run.cause);
    say(this.cure, run.cure);
    show(this.failure, run.cause);
    show(this.next, run.next);
    if (run.next !== this.said) this.proposal(run);
    show(this.report, run.can.report);
    put(this.report, "href", `/report?run=${encodeURIComponent(run.id)}`);
    put(this.report, "aria-label", `${words.report}: ${run.title}`);
    put(this.box, "aria-label", `${words.pick}: ${run.title}`);
    put(this.download, "href", `/studio/run/${encodeURIComponent(run.id)}/yaml`);
    for (const verb of VERBS) {
      show(this.buttons[verb], run.can[verb] ?? true);
      put(this.buttons[verb], "aria-label", `${words[verb]}: ${run.title}`);
    }
    show(this.buttons.resume, run.can.resume && !["resume", "anyway"].includes(run.next)); // the other button does it
  }

  /** What the button beside the cause does; a proposed change is asked for once, and named. */
  async proposal(run) {
    const { words } = this.page;
    this.said = run.next;
    say(this.next, run.next === "mend" ? words["mend.plain"] : words[run.next] ?? "");
    if (run.next !== "mend") return;
    const { change } = await ask(`/studio/run/${encodeURIComponent(run.id)}/config`).catch(() => ({ change: "" }));
    if (change && this.run.next === "mend") say(this.next, words.mend.replace("{change}", change));
  }

  picked(on, full) {
    this.box.checked = on;
    this.box.disabled = full && !on;
  }

  async open() {
    if (!this.more.open) return;
    try {
      const config = await ask(`/studio/run/${encodeURIComponent(this.id)}/config`);
      say(this.yaml, config.yaml);
      say(this.line, config.command);
    } catch (error) {
      say(this.yaml, error.message || this.page.words.away);
    }
  }
}
