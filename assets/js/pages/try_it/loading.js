/* The model that is being loaded: a bar as long as it took the last time. It is loaded as soon as a run is chosen, so that
   the first answer begins at once; whoever asks meanwhile waits for it. */

import { stream } from "../../ask.js";
import { say, show } from "../../dom.js";
import { keepLoad, loadSeconds } from "./kept.js";

export class Loading {
  constructor(page) {
    Object.assign(this, { page, ready: Promise.resolve(), controller: null, seconds: 0 });
    page.get("loading-cancel").addEventListener("click", () => { this.cancel(); page.go.stop(); });
  }

  /** Loads a checkpoint that will be asked soon, where the card is free; another one is given up. */
  warm(run, checkpoint, base) {
    this.cancel();
    const controller = this.controller = new AbortController();
    const heard = (line) => { if (controller === this.controller) this.heard(line, base); };
    this.ready = stream("/studio/load", { run, checkpoint }, heard, controller.signal)
      .catch(() => {}) // the question itself says what is wrong
      .finally(() => { if (controller === this.controller) this.end(); });
  }

  cancel() {
    this.controller?.abort();
    this.end();
  }

  /** Takes a line of a stream; whether it told of loading. */
  heard(line, base) {
    if (line.loading === undefined) {
      if (this.seconds) keepLoad(base, this.seconds);
      this.end();
      return Boolean(line.ready);
    }
    const { page } = this;
    if (!this.seconds) say(page.get("said"), page.words["loading.said"]);
    this.seconds = line.loading;
    say(page.get("loading-words"), page.words.loading.replace("{seconds}", Math.round(line.loading)));
    page.get("loading-bar").value = Math.min(0.97, line.loading / loadSeconds(base));
    if (page.get("loading").hidden) page.chat.following(() => show(page.get("loading"), true));
    return true;
  }

  end() {
    this.seconds = 0;
    show(this.page.get("loading"), false);
  }
}
