/* The choices for all reports: checks of answers, each with the fields of its kind, and a file of general texts. */

import { ask } from "../../ask.js";
import { make, say, show } from "../../dom.js";

const NUMBERS = new Set(["tolerance", "least", "most"]);
let fields = 0;

export class Checks {
  /** `told`: {words, kinds: [{key, title, hint, fields}], units, chosen: {checks, general}, data, most}. */
  constructor(page, told) {
    Object.assign(this, { page, told, rows: [] });
    page.get("general").value = told.chosen.general;
    for (const check of told.chosen.checks) this.add(check);
    this.settle();
    page.get("check-add").addEventListener("click", () => {
      this.add({ name: "", kind: told.kinds[0].key }).name.focus();
      this.settle();
    });
    const form = page.get("choices");
    form.addEventListener("input", () => this.unsaved());
    form.addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
  }

  /** One check as a line of fields. */
  add(check) {
    const { words, kinds, data } = this.told;
    const row = { given: check, inputs: {} };
    row.name = make("input", { type: "text", maxlength: 80, required: true });
    row.name.value = check.name;
    row.kind = make("select", { onchange: () => this.ask(row) }, ...kinds.map((kind) => new Option(kind.title, kind.key)));
    row.kind.value = check.kind;
    row.data = make("select", {}, new Option(words["for.all"], ""), ...[...new Set([data, check.data ?? ""])].filter(Boolean).map((name) => new Option(name, name)));
    row.data.value = check.data ?? "";
    row.more = make("span", { class: "edit-fields" });
    const remove = make("button", { type: "button", class: "quiet danger", onclick: () => this.remove(row) }, words.remove);
    row.root = make("li", {}, label(words.name, row.name), label(words.kind, row.kind), row.more, label(words.for, row.data), remove);
    this.rows.push(row);
    this.page.get("checks").append(row.root);
    this.ask(row);
    return row;
  }

  /** The fields of the row's kind; what was written in another kind's field of the same name stays. */
  ask(row) {
    const kind = this.told.kinds.find((one) => one.key === row.kind.value);
    const before = { ...row.given, ...values(row.inputs) };
    row.inputs = Object.fromEntries(kind.fields.map((name) => [name, this.input(name, kind, before[name])]));
    row.more.replaceChildren(...Object.entries(row.inputs).map(([name, input]) => label(this.told.words[`field.${name}`], input, name === "expected" ? kind.hint : "")));
  }

  input(name, kind, value) {
    if (name === "unit") {
      const select = make("select", {}, ...this.told.units.map(([unit, words]) => new Option(words, unit)));
      select.value = value ?? this.told.units[0][0];
      return select;
    }
    if (name === "ignore_case") {
      const box = make("input", { type: "checkbox" });
      box.checked = value ?? true;
      return box;
    }
    if (NUMBERS.has(name)) {
      const field = make("input", { type: "number", min: 0, step: name === "tolerance" ? "any" : 1 });
      field.value = value ?? 0;
      return field;
    }
    const long = name === "labels" || kind.key === "json";
    const field = make(long ? "textarea" : "input", long ? { rows: 3, spellcheck: "false" } : { type: "text", spellcheck: "false" });
    field.value = Array.isArray(value) ? value.join("\n") : (value ?? "");
    return field;
  }

  remove(row) {
    this.rows = this.rows.filter((one) => one !== row);
    row.root.remove();
    this.settle();
    this.unsaved();
    this.page.get("check-add").focus();
  }

  /** What was changed is not saved: the page must not be loaded anew meanwhile. */
  unsaved() {
    this.page.editing = true;
    say(this.page.get("choices-said"), this.told.words.unsaved);
  }

  settle() {
    show(this.page.get("checks-none"), !this.rows.length);
    this.page.get("check-add").disabled = this.rows.length >= this.told.most;
  }

  async save() {
    const { page, told } = this;
    const checks = this.rows.map((row) => ({ name: row.name.value.trim(), kind: row.kind.value, data: row.data.value, ...values(row.inputs) }));
    const general = page.get("general").value.trim();
    const saved = await page.attempt(() => ask("/studio/report-choices", { checks, general }));
    if (!saved) return;
    page.editing = false;
    say(page.get("choices-said"), told.words.saved);
    if (page.words.reported) await page.count();
  }
}

/** What stands in fields, as the studio takes it. */
function values(inputs) {
  const read = (name, input) => {
    if (name === "ignore_case") return input.checked;
    if (name === "labels") return input.value.split("\n").map((one) => one.trim()).filter(Boolean);
    return NUMBERS.has(name) ? Number(input.value) || 0 : input.value;
  };
  return Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, read(name, input)]));
}

/** A field under its name; a box stands before it. */
function label(words, input, hint = "") {
  const id = hint && `check-hint-${(fields += 1)}`;
  if (hint) input.setAttribute("aria-describedby", id);
  const kind = input.type === "checkbox" ? "edit-box" : null;
  return make("label", { class: kind }, make("span", {}, words), input, hint ? make("span", { id, class: "hint" }, hint) : null);
}
