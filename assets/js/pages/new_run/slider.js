/* The slider under the histogram. Its stops are the bins; moving it writes "Max length", to which the studio
   answers as when a person types. */

import { put, say } from "../../dom.js";

const FIELD = "#train-max_length input";

/** Listens once; what comes back is to be called when the page has changed. */
export function slider() {
  let seen = "";
  let mine = 0;

  document.addEventListener("input", (event) => {
    if (event.target.id !== "length-slider") return;
    const stops = stopsOf(document.querySelector(".lengths"));
    const field = document.querySelector(FIELD);
    if (!stops.length || !field) return;
    mine = stops[Number(event.target.value)];
    field.value = String(mine);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    said(event.target, mine);
    say(document.querySelector(".length-figures dd"), mine.toLocaleString("en")); // what follows from it takes an answer
  });

  return () => {
    const picture = document.querySelector(".lengths");
    const range = document.getElementById("length-slider");
    if (!range) return;
    range.closest(".length-slide").hidden = !picture;
    if (!picture) return;
    const limit = Number(picture.dataset.limit);
    const now = `${picture.dataset.stops}|${limit}`;
    if (now === seen) return;
    if (document.activeElement === range && mine && mine !== limit) return; // an older answer, while it is being moved
    seen = now;
    mine = 0;
    const stops = stopsOf(picture);
    put(range, "max", stops.length - 1);
    range.parentElement.style.setProperty("--k", picture.dataset.first);
    range.parentElement.style.setProperty("--n", stops.length + Number(picture.dataset.first));
    range.value = String(nearest(stops, limit));
    said(range, limit);
  };
}

/* Bins below the least limit that may be chosen are bars only. */
const stopsOf = (picture) => (picture?.dataset.stops ?? "").split(",").filter(Boolean).map(Number).slice(Number(picture?.dataset.first));

const nearest = (stops, limit) =>
  stops.reduce((best, stop, index) => (Math.abs(stop - limit) < Math.abs(stops[best] - limit) ? index : best), 0);

function said(range, tokens) {
  put(range, "aria-valuetext", range.dataset.words.replace("{tokens}", tokens.toLocaleString("en")));
}
