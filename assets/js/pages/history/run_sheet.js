/* What opens below a run's line: what became of it and the button for it, its figures, note, tags and color, what can be
   done with it, and its settings. */

import { ask } from "../../ask.js";
import { copied, make, put, say, show } from "../../dom.js";

const FACTS = ["data", "steps", "loss", "preset", "measured"];
const COLOURS = 5;

export class Sheet {
  constructor(row) {
    Object.assign(this, { row, page: row.page, facts: {}, said: undefined });
    const { words } = this.page;
    this.verdict = make("p", { class: "run-verdict" });
    this.cause = make("strong");
    this.cure = make("p");
    this.next = make("button", { type: "button", class: "push", onclick: () => this.page.command(this.run, this.run.next) });
    this.failure = make("div", { class: "run-failure" }, make("div", {}, this.cause, this.cure), this.next);
    this.opened = make("p", { class: "hint" });
    this.buttons = make("div", { class: "run-buttons" });
    const facts = make("dl", { class: "run-facts" }, ...FACTS.map((name) => this.fact(name)));
    const told = make("div", { class: "run-told" }, this.failure, this.verdict, this.opened, facts, this.buttons, this.settings());
    this.root = make("div", { class: "run-sheet", role: "cell" }, told, this.kept(words));
  }

  fact(name) {
    this.facts[name] = make("dd");
    return make("div", {}, make("dt", {}, this.page.words[name] ?? ""), this.facts[name]);
  }

  /** Note, tags and color: kept as soon as a field is left. */
  kept(words) {
    this.note = make("textarea", { rows: 3, maxlength: 4000, placeholder: words["note.hint"], onchange: () => this.mark({ note: this.note.value }) });
    this.tags = make("input", { type: "text", placeholder: words["tags.hint"], onchange: () => this.mark({ tags: this.tags.value.split(",") }) });
    const name = `colour-${this.row.id}`;
    this.colours = Array.from({ length: COLOURS + 1 }, (_, colour) => make("input", { type: "radio", name, value: colour, "aria-label": colour ? words["colour.number"].replace("{number}", colour) : words["colour.none"], "data-colour": colour, onchange: () => this.mark({ colour }) }));
    const colours = make("fieldset", { class: "colours" }, make("legend", {}, words.colour), ...this.colours);
    return make("div", { class: "run-kept" }, make("label", {}, make("span", {}, words.note), this.note), make("label", {}, make("span", {}, `${words.tags}, ${words["tags.help"]}`), this.tags), colours);
  }

  mark(changes) {
    return this.page.mark(this.run, changes);
  }

  settings() {
    const { words } = this.page;
    this.yaml = make("pre", { tabindex: 0, role: "region" });
    this.line = make("code", { class: "path" });
    const copies = make("button", { type: "button", onclick: () => copied(copies, this.line.textContent, words) }, words.copy);
    const download = make("a", { class: "push quiet", download: "", href: `/studio/run/${encodeURIComponent(this.row.id)}/yaml` }, words.yaml);
    this.more = make("details", { class: "run-more", ontoggle: () => this.open() }, make("summary", {}, words.config),
      make("p", {}, words.repeat), make("p", { class: "job-path" }, this.line, copies), this.yaml, make("p", {}, download));
    return this.more;
  }

  update(run) {
    const { words } = this.page;
    this.run = run;
    put(this.yaml, "aria-label", `${words.config}: ${run.title}`);
    show(this.more, run.can.watch);
    for (const name of FACTS) {
      say(this.facts[name], run[name]);
      show(this.facts[name].parentElement, run[name] && run[name] !== "–");
    }
    say(this.facts.measured.previousSibling, words[`measure.${run.measure}`]);
    for (const [element, text] of [[this.verdict, run.verdict], [this.cause, run.cause], [this.cure, run.cure]]) say(element, text);
    show(this.verdict, run.verdict);
    show(this.failure, run.cause);
    show(this.next, run.next);
    say(this.opened, run.can.try ? words["opened.what"] : words["opened.bare"]);
    show(this.opened, run.opened);
    if (run.next !== this.said) this.proposal(run);
    this.offer(run);
    this.fields(run);
  }

  /** Buttons are made anew only where others are offered: one that has the keyboard keeps it. */
  offer(run) {
    const now = JSON.stringify([run.can, run.pinned, run.next, run.title]);
    if (this.offered === now) return;
    this.offered = now;
    const { words } = this.page;
    const links = run.can.try ? [["try", "/try"], ["take", "/take-home"]] : [];
    const made = links.map(([name, to]) => make("a", { href: `${to}?run=${encodeURIComponent(run.id)}`, "aria-label": `${words[name]}: ${run.title}` }, words[name]));
    this.buttons.replaceChildren(...made, ...this.row.actions());
    for (const button of this.buttons.children) button.classList.add(button.localName === "a" ? "push" : "quiet", "quiet");
  }

  /** Only what has changed is written: an answer that was under way does not undo what was just chosen, and a field that
      is being written stays as it is. */
  fields(run) {
    const now = JSON.stringify([run.note, run.tags, run.colour]);
    if (this.marks === now) return;
    this.marks = now;
    for (const part of this.root.querySelectorAll(".run-kept :is(textarea, input)")) part.disabled = !run.can.rename;
    if (document.activeElement !== this.note) this.note.value = run.note;
    if (document.activeElement !== this.tags) this.tags.value = run.tags.join(", ");
    this.colours[run.colour].checked = true;
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

  async open() {
    if (!this.more.open) return;
    try {
      const config = await ask(`/studio/run/${encodeURIComponent(this.row.id)}/config`);
      say(this.yaml, config.yaml);
      say(this.line, config.command);
    } catch (error) {
      say(this.yaml, error.message || this.page.words.away);
    }
  }
}
