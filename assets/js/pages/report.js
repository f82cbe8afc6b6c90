/* The report page. The report itself is made on the server: this script looks whether a newer one stands and then loads
   the page anew, starts and stops the making, opens what a link leads to, and edits the checks (report/checks.js). */

import { ask } from "../ask.js";
import { put, say, show } from "../dom.js";
import { Page } from "../page.js";
import { Checks } from "./report/checks.js";

const LIVING = 1000;
const IDLE = 5000;

export function page(root, words) {
  return new Report(root, words);
}

class Report extends Page {
  constructor(root, words) {
    super(root, words);
    this.get("run")?.addEventListener("change", ({ target }) => target.value && location.assign(`/report?run=${encodeURIComponent(target.value)}`));
    addEventListener("hashchange", () => this.open());
    this.open();
    if (words.editing) new Checks(this, words.editing);
    if (!words.run || !this.get("work")) return;
    this.address = `/studio/run/${encodeURIComponent(words.run)}/report`;
    for (const button of root.querySelectorAll("[data-make]")) button.addEventListener("click", () => this.make(button.dataset.make === "true"));
    this.get("stop").addEventListener("click", () => this.send("/stop", {}));
    this.get("count")?.addEventListener("click", () => this.count());
    this.take(words.state);
    this.look(async () => this.take(await ask(this.address)), () => (this.living ? LIVING : IDLE));
  }

  /** Where the making stands; once it is over, the page is loaded anew if another report stands and nothing is lost. */
  take(state) {
    this.living = state.living;
    for (const [name, working] of [["work", true], ["stop", true], ["made", false], ["asks", false]]) show(this.get(name), state.living === working);
    say(this.get("text"), state.text);
    const bar = this.get("bar");
    if (state.share === null) bar.removeAttribute("value");
    else put(bar, "value", state.share.toFixed(4));
    if (state.fault !== (this.ended ?? "")) this.fault((this.ended = state.fault)); // another fault of the page stays
    if (!state.living && !this.editing && state.stamp !== this.words.state.stamp) location.reload();
  }

  make(again) {
    const minutes = Number(this.get("minutes").value) || 0;
    return this.send("", { again, minutes });
  }

  /** Counts today's checks in the answers that are there; the page comes back at them. */
  count() {
    return this.attempt(async () => {
      await ask(`${this.address}/checks`, {});
      location.hash = "answers";
      location.reload();
    });
  }

  send(path, body) {
    return this.attempt(async () => {
      await ask(this.address + path, body);
      await this.turn();
    });
  }

  /** Opens what folds around the element that the address names, which not every browser does by itself. */
  open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details:not([open])");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
  }
}
