/* Starts the script of a live page: its one element names it (data-live) and brings its words (data-words). Only that
   script is loaded, and what it needs: the page's head has named them already. */

import { notices } from "./js/notice.js";

const root = document.querySelector("[data-live]");
if (root) {
  const { page } = await import(`./js/pages/${root.dataset.live}.js`);
  page(root, JSON.parse(root.dataset.words));
}
notices();
