/* A run saved as one file: what goes into it is said and chosen first (studio/shell/slots.py). */

import { ask } from "./ask.js";
import { say } from "./dom.js";
import { choose } from "./page.js";

/** `run`: {id, title, kept: whether a checkpoint stands}; whether it was saved. */
export async function saveAsFile(page, run) {
  const box = page.get("file-adapter");
  say(page.get("file-name"), run.title);
  box.checked = false;
  box.disabled = !run.kept;
  if ((await choose(page.get("file-dialog"))) !== "file") return false;
  return page.attempt(async () => {
    const { path } = await ask(`/studio/run/${encodeURIComponent(run.id)}/pack`, { adapter: box.checked });
    location.assign(path); // a download: the page stays
  });
}
