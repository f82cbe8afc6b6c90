/* Who answers beside each other: the original, the finetuned model, and up to three other checkpoints or runs. */

import { ask } from "../../ask.js";
import { make, say, show } from "../../dom.js";

const MOST = 5;
const MAIN = ["base", "tuned"];

export class Columns {
  constructor(page, changed) {
    Object.assign(this, { page, changed, list: [], runs: [] });
    const { get } = page;
    get("compare").addEventListener("toggle", () => { if (get("compare").open) this.offer(); });
    get("compare").addEventListener("keydown", (event) => { if (event.key === "Escape") this.fold(); });
    document.addEventListener("click", (event) => { if (!get("compare").contains(event.target)) get("compare").open = false; });
    get("other-run").addEventListener("change", () => page.attempt(() => this.offerCheckpoints()));
    get("other-add").addEventListener("click", () => this.add(this.other()));
    get("other-base").addEventListener("click", () => this.add(this.main("base")));
  }

  /** Another run's columns, as they were kept. */
  open(kept) {
    const known = Array.isArray(kept) ? kept : [];
    this.list = known.length ? known.map((one) => (MAIN.includes(one.key) ? this.main(one.key) : one)) : MAIN.map((side) => this.main(side));
    this.draw();
  }

  /** A column of the run that is chosen; its checkpoint is the one that is chosen now. */
  main(side) {
    const { page } = this;
    return { key: side, side, title: page.words[side], get run() { return page.get("run").value; }, get checkpoint() { return page.get("checkpoint").value; }, get base() { return page.about.base; } };
  }

  /** As they are kept. */
  kept() {
    return this.list.map((one) => (MAIN.includes(one.key) ? { key: one.key } : one));
  }

  of(key) {
    return this.list.find((one) => one.key === key);
  }

  /** The tone of a column: others are numbered. */
  tone(key) {
    if (MAIN.includes(key)) return key;
    return `other-${Math.max(0, this.list.filter((one) => !MAIN.includes(one.key)).findIndex((one) => one.key === key)) % 3}`;
  }

  /** The runs to choose from. */
  async offer() {
    const { page } = this;
    const select = page.get("other-run");
    const chosen = select.value || page.get("run").value;
    select.replaceChildren(...[...page.get("run").options].map((option) => make("option", { value: option.value }, option.textContent)));
    select.value = chosen;
    await page.attempt(() => this.offerCheckpoints());
  }

  async offerCheckpoints() {
    const { page } = this;
    const { words } = page;
    const run = page.get("other-run").value;
    page.get("other-add").disabled = true; // the list of checkpoints is still another run's, or none
    const [facts, about] = await Promise.all(["keep", "chat"].map((what) => ask(`/studio/run/${encodeURIComponent(run)}/${what}`)));
    if (run !== page.get("other-run").value) return;
    this.offered = { run, base: about.base, scores: facts.asked.scores };
    page.get("other-checkpoint").replaceChildren(...facts.checkpoints.map((item) => make("option", { value: item.name }, item.words)));
    this.can(facts.asked.scores ? words["compare.scores"] : facts.checkpoints.length ? "" : words["compare.empty"]);
  }

  /** Says why a column cannot be added, or that it can. */
  can(why) {
    const { page } = this;
    const full = this.list.length >= MOST ? page.words["compare.full"] : "";
    say(page.get("other-why"), full || why);
    page.get("other-add").disabled = Boolean(full || why);
    page.get("other-base").disabled = Boolean(full);
    show(page.get("other-base"), !this.of("base"));
  }

  other() {
    const { page, offered } = this;
    const [run, checkpoint] = [page.get("other-run"), page.get("other-checkpoint")].map((select) => select.selectedOptions[0]);
    if (offered.run === page.get("run").value && checkpoint.value === page.get("checkpoint").value && !this.of("tuned")) return this.main("tuned");
    const step = checkpoint.textContent.split(" (")[0];
    const named = page.words["column.other"].replace("{run}", run.textContent.split(" · ")[0]).replace("{checkpoint}", step);
    const title = offered.run === page.get("run").value ? step : named;
    return { key: `${offered.run}:${checkpoint.value}`, side: "tuned", title, run: offered.run, checkpoint: checkpoint.value, base: offered.base };
  }

  add(column) {
    if (this.list.length >= MOST) return;
    if (!this.of(column.key)) this.list = column.key === "base" ? [column, ...this.list] : [...this.list, column];
    this.fold();
    this.draw();
    this.changed();
  }

  remove(key) {
    this.list = this.list.filter((one) => one.key !== key);
    this.draw();
    this.page.get("compare").querySelector("summary").focus();
    this.changed();
  }

  fold() {
    this.page.get("compare").open = false;
    this.page.get("compare").querySelector("summary").focus();
  }

  draw() {
    const { page, list } = this;
    page.get("columns").replaceChildren(...list.map(({ key, title }) => make("li", { class: `column answer-${this.tone(key)}` },
      make("span", { class: "column-title", title }, title),
      list.length > 1 ? make("button", { type: "button", class: "column-off", "aria-label": page.words.remove.replace("{title}", title), onclick: () => this.remove(key) }, "×") : null)));
  }
}
