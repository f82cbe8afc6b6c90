/* Finds the live parts of a page, whenever they are mounted, and starts each once. No other script of ours runs. */

import { history_ } from "./js/history.js";
import { take_home } from "./js/take_home.js";
import { try_it } from "./js/try_it.js";
import { watch } from "./js/watch.js";

const PAGES = { watch, try_it, take_home, history: history_ };

/** Starts every placeholder that is not started yet. */
function boot() {
  for (const root of document.querySelectorAll("[data-live]:not([data-started])")) {
    root.setAttribute("data-started", "");
    PAGES[root.dataset.live]?.(root, JSON.parse(root.dataset.words));
  }
}

let asked = 0;
new MutationObserver(() => {
  if (!asked) asked = requestAnimationFrame(() => { asked = 0; boot(); });
}).observe(document.documentElement, { childList: true, subtree: true });
boot();
