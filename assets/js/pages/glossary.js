/* The glossary's search: a term stays when all typed words occur in its names, text or settings; its links do not count.
   A link to a term that the search hides ends the search. */

import { field, say, show } from "../dom.js";

export function page(root, words) {
  const search = field(root, "search");
  const count = field(root, "count");
  const terms = [...root.querySelectorAll(".term")].map((term) => ({
    term,
    text: [term.dataset.names, ...[...term.querySelectorAll("dt, dd:not(.aside), code")].map((one) => one.textContent)]
      .join(" ")
      .toLowerCase(),
  }));
  const parts = [...root.querySelectorAll("[data-part]")];

  const filter = () => {
    const wanted = search.value.trim().toLowerCase().split(/[\s_]+/).filter(Boolean);
    let matches = 0;
    for (const { term, text } of terms) {
      const fits = wanted.every((word) => text.includes(word));
      show(term, fits);
      matches += fits;
    }
    for (const part of parts) show(part, part.querySelector(".term:not([hidden])"));
    say(count, wanted.length === 0 ? "" : matches === 0 ? words.none : words.found.replace("{count}", matches).replace("{total}", terms.length));
  };
  const leap = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.closest("[hidden]")) return;
    search.value = "";
    filter();
    target.scrollIntoView();
  };
  search.addEventListener("input", filter);
  window.addEventListener("hashchange", leap);
  filter(); // a browser that came back may have kept what was typed
}
