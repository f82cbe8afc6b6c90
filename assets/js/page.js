/* The base of all live pages: fields, the line for a fault, and polling. */

import { ask, poll } from "./ask.js";
import { field, make, put, say, show } from "./dom.js";

export class Page {
  constructor(root, words) {
    Object.assign(this, { root, words, away: false });
    this.get = (name) => field(root, name);
  }

  /** Does `work` now, on `turn()`, and every `pause()` milliseconds; an absent studio is reported until it answers. What
      `work` fills is seen once it is filled, so that nothing moves. */
  look(work, pause) {
    this.root.dataset.wait = "";
    const turn = async () => {
      try {
        await work();
        if (this.away) this.fault("");
        this.away = false;
      } catch (error) {
        this.away = true;
        this.failed(error);
      } finally {
        delete this.root.dataset.wait;
      }
    };
    this.turn = poll(this.root, turn, pause);
  }

  /** Does `work` once; whether it went well. */
  async attempt(work) {
    this.fault("");
    try {
      await work();
      return true;
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
      return false;
    }
  }

  failed(error) {
    this.fault(error.message || this.words.away);
  }

  fault(text) {
    say(this.get("fault"), text);
    show(this.get("fault"), text);
  }

  /** The address names the run that is shown, so that a refresh shows it again; so do links to its other pages. */
  names(run) {
    history.replaceState(history.state, "", `${location.pathname}?run=${encodeURIComponent(run)}`);
    this.leads(run);
  }

  /** Links to other pages (`data-to`) lead to this run there. */
  leads(run) {
    for (const link of this.root.querySelectorAll("[data-to]")) put(link, "href", `${link.dataset.to}?run=${encodeURIComponent(run)}`);
  }

  /** Fills the choice of a run, newest first, the address's one chosen; or says why there is none. The default name of a
      run contains its time. */
  async offerRuns() {
    const { runs, all } = await ask("/studio/runs");
    const [select, none] = [this.get("run"), this.get("none")];
    const wanted = new URLSearchParams(location.search).get("run");
    select.replaceChildren(...runs.map((run) => make("option", { value: run.id }, [run.title, run.name && run.when, run.word].filter(Boolean).join(" · "))));
    if (runs.some((run) => run.id === wanted)) select.value = wanted;
    if (all) {
      say(none.querySelector("p"), this.words.unsaved);
      say(none.querySelector("a"), this.words.unsaved_do);
      put(none.querySelector("a"), "href", "/watch");
    }
    show(none, !runs.length);
    show(this.get("some"), runs.length);
    return runs.length > 0;
  }

  /** Fills the choice of a run's checkpoint; one that is still there stays chosen. */
  offerCheckpoints(checkpoints) {
    const select = this.get("checkpoint");
    const chosen = select.value;
    select.replaceChildren(...checkpoints.map((item) => make("option", { value: item.name }, item.words)));
    if (checkpoints.some((item) => item.name === chosen)) select.value = chosen;
  }
}

/** Opens a dialog and gives the value of the button that closed it; "" for Escape or the way back. */
export function choose(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}
