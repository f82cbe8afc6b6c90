/* Starts the script of a live page: its one element names it (data-live) and brings its words (data-words). */

import { notices } from "./js/notice.js";

/** Only the page's own script is loaded, and what it needs: the page's head has named them already. */
const PAGES = {
  watch: async () => (await import("./js/watch.js")).watch,
  try_it: async () => (await import("./js/try_it.js")).try_it,
  take_home: async () => (await import("./js/take_home.js")).take_home,
  history: async () => (await import("./js/history.js")).history_,
  doctor: async () => (await import("./js/doctor.js")).doctor,
  proof: async () => (await import("./js/proof.js")).proof,
  glossary: async () => (await import("./js/glossary.js")).glossary,
};

const root = document.querySelector("[data-live]");
if (root) (await PAGES[root.dataset.live]())(root, JSON.parse(root.dataset.words));
notices();
