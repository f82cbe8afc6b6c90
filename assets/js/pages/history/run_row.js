/* One run in the history: a line of the table, its menu, and what opens below it (run_sheet.js). */

import { draw, icon, make, put, say, show, state, told } from "../../dom.js";
import { Sheet } from "./run_sheet.js";

const CELLS = ["differs", "model", "curve", "held_out", "took", "when", "size", "tags"];
const TAGS = 2;

/** What may be done with a run, in the order of its menu; a link or a command. */
const VERBS = ["report", "pinned", "rename", "resume", "rerun", "file", "delete"];

export class Row {
  /** `page`: {words, command(run, verb, body), pick(id, on), wanted(tag)}. */
  constructor(page, id) {
    Object.assign(this, { page, id, cells: {} });
    const { words } = page;
    this.box = make("input", { type: "checkbox", onchange: () => page.pick(id, this.box.checked) });
    this.title = make("a", { class: "run-title" });
    this.toggle = make("button", { type: "button", class: "run-toggle", "aria-expanded": "false", onclick: () => this.open() });
    this.state = state();
    this.pin = sign("pin", words.pinned);
    this.note = sign("note", words.has_note);
    this.from = make("span", { class: "run-from" }, words.opened);
    this.path = draw("path");
    this.curve = draw("svg", { class: "curve", viewBox: "0 0 96 24", role: "img" }, this.path);
    this.tags = make("span", { class: "run-tags" });
    this.menu = make("details", { class: "run-menu" }, make("summary", {}, icon("dots")), make("div", { class: "run-menu-list" }));
    this.menu.addEventListener("toggle", () => this.fill());
    this.menu.addEventListener("keydown", (event) => this.keys(event));
    this.menu.addEventListener("focusout", (event) => { if (!this.menu.contains(event.relatedTarget)) this.menu.open = false; });
    const name = make("div", { class: "cell-title", role: "cell" }, this.toggle, this.state, this.title, this.pin, this.note, this.from);
    for (const key of CELLS) this.cells[key] = make("div", { class: `cell-${key}`, role: "cell" });
    this.cells.curve.append(this.curve);
    this.cells.tags.append(this.tags);
    this.root = make("div", { class: "run", role: "row" },
      make("div", { class: "cell-pick", role: "cell" }, this.box), name, ...CELLS.map((key) => this.cells[key]), make("div", { class: "cell-menu", role: "cell" }, this.menu));
  }

  update(run) {
    const { words } = this.page;
    this.run = run;
    say(this.title, run.short);
    put(this.title, "title", run.title);
    if (run.can.watch) put(this.title, "href", `/watch?run=${encodeURIComponent(run.id)}`);
    else this.title.removeAttribute("href");
    put(this.toggle, "aria-label", words.open.replace("{title}", run.title));
    told(this.state, run.tone, run.word);
    put(this.root, "data-plain", run.state === "finished" && run.tone === "good"); // a dot says it
    put(this.root, "data-colour", run.colour);
    this.box.hidden = !run.can.watch;
    put(this.box, "aria-label", `${words.pick}: ${run.title}`);
    put(this.menu.firstElementChild, "aria-label", words.actions.replace("{title}", run.title));
    for (const [element, on] of [[this.pin, run.pinned], [this.note, run.note], [this.from, run.opened]]) show(element, on);
    put(this.note, "title", run.note);
    for (const [key, text] of Object.entries({ differs: run.differs, model: [run.model, run.method, run.cards].filter((one) => one && one !== "–").join(" · "), took: run.took, when: run.when, size: run.size })) this.told(key, text);
    this.told("held_out", run.measured || run.held_out);
    put(this.cells.held_out, "title", run.measured ? words[`measure.${run.measure}`] : "");
    put(this.cells.held_out, "data-tone", run.state === "finished" ? run.tone : "");
    this.curve.toggleAttribute("hidden", !run.curve);
    put(this.curve, "class", `curve of-${run.curve_of}`);
    put(this.curve, "aria-label", words[`curve.${run.curve_of}`]);
    if (run.curve) put(this.path, "d", run.curve);
    this.tagged(run.tags);
    this.sheet?.update(run);
  }

  /** A cell's words, whole in its title, since they may be cut. */
  told(key, text) {
    say(this.cells[key], text);
    put(this.cells[key], "title", text);
  }

  tagged(tags) {
    if (this.known === `${tags}`) return;
    this.known = `${tags}`;
    const shown = tags.slice(0, TAGS).map((tag) => make("button", { type: "button", class: "tag", title: tag, onclick: () => this.page.wanted(tag) }, tag));
    const rest = tags.length > TAGS ? [make("span", { title: tags.slice(TAGS).join(", ") }, `+${tags.length - TAGS}`)] : [];
    this.tags.replaceChildren(...shown, ...rest);
  }

  /** What may be done with the run now, as buttons and links. */
  actions() {
    const { page, run } = this;
    const { words } = page;
    const offered = { pinned: run.can.rename, ...run.can, resume: run.can.resume && !["resume", "anyway"].includes(run.next) };
    return VERBS.filter((verb) => offered[verb]).map((verb) => {
      const name = verb === "pinned" ? words[run.pinned ? "unpin" : "pin"] : words[verb];
      if (verb === "report") return make("a", { href: `/report?run=${encodeURIComponent(run.id)}`, "aria-label": `${name}: ${run.title}` }, name);
      return make("button", { type: "button", class: verb === "delete" ? "danger" : "", "aria-label": `${name}: ${run.title}`, onclick: () => this.act(verb) }, name);
    });
  }

  act(verb) {
    this.menu.open = false;
    if (verb === "rename") this.naming(true);
    else if (verb === "pinned") this.page.mark(this.run, { pinned: !this.run.pinned });
    else this.page.command(this.run, verb);
  }

  fill() {
    const list = this.menu.lastElementChild;
    list.replaceChildren(...(this.menu.open ? this.actions() : []));
    list.firstElementChild?.focus();
  }

  keys(event) {
    const items = [...this.menu.lastElementChild.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && this.menu.open) {
      this.menu.open = false;
      this.menu.firstElementChild.focus();
    } else if (step && items.length) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Opens what is known of the run below its line, or closes it. */
  open(on = this.toggle.getAttribute("aria-expanded") !== "true") {
    put(this.toggle, "aria-expanded", on);
    if (on && !this.sheet) {
      this.sheet = new Sheet(this);
      this.root.append(this.sheet.root);
    }
    if (!this.sheet) return;
    show(this.sheet.root, on);
    this.sheet.update(this.run);
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
    if (!on) return this.title.focus();
    this.title.after(this.form());
    this.field.value = this.run.name;
    this.field.select();
  }

  picked(on, full) {
    this.box.checked = on;
    this.box.disabled = full && !on;
  }
}

/** A small sign with words for who does not see it. */
function sign(name, words) {
  return make("span", { class: `sign sign-${name}`, role: "img", "aria-label": words, title: words }, icon(name));
}
