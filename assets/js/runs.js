/* The choice of a run, as try and take home have it. */

import { make } from "./dom.js";

/** Fills a <select> with runs, newest first; the address's run is chosen. False where there is none. */
export function fillRuns(select, runs) {
  const wanted = new URLSearchParams(location.search).get("run");
  select.replaceChildren(...runs.map((run) => make("option", { value: run.id }, `${run.title} · ${run.when} · ${run.word}`)));
  if (runs.some((run) => run.id === wanted)) select.value = wanted;
  return runs.length > 0;
}
