/* The choice of a run, as try and take home have it. */

import { make, put, say, show } from "./dom.js";

/** Which runs there are to choose from: shows the choice, or why there is none (no run, or none with a checkpoint). */
export function offer(get, { runs, all }, words) {
  const some = fillRuns(get("run"), runs);
  const none = get("none");
  if (!some && all) {
    say(none.querySelector("p"), words.unsaved);
    say(none.querySelector("a"), words.unsaved_do);
    put(none.querySelector("a"), "href", "/watch");
  }
  show(none, !some);
  show(get("some"), some);
  return some;
}

/** Fills a <select> with runs, newest first; the address's run is chosen. False where there is none. A run that nobody
    named has its time in its name already. */
function fillRuns(select, runs) {
  const wanted = new URLSearchParams(location.search).get("run");
  select.replaceChildren(...runs.map((run) => make("option", { value: run.id }, [run.title, run.name && run.when, run.word].filter(Boolean).join(" · "))));
  if (runs.some((run) => run.id === wanted)) select.value = wanted;
  return runs.length > 0;
}
