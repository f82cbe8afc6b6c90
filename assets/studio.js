/* Starts the script of a live page: its one element names it (data-live) and brings its words (data-words). */

import { doctor } from "./js/doctor.js";
import { glossary } from "./js/glossary.js";
import { history_ } from "./js/history.js";
import { notices } from "./js/notice.js";
import { proof } from "./js/proof.js";
import { take_home } from "./js/take_home.js";
import { try_it } from "./js/try_it.js";
import { watch } from "./js/watch.js";

const PAGES = { watch, try_it, take_home, history: history_, doctor, proof, glossary };

const root = document.querySelector("[data-live]");
if (root) PAGES[root.dataset.live](root, JSON.parse(root.dataset.words));
notices();
