/* The run at work, in the header of every page (studio/shell/frame.py). Its begin and end are read out, its progress is
   not; Watch says of its own run itself. */

import { put, say, show } from "./dom.js";

const PARTS = ["word", "percent", "title", "left", "waiting"];

/** Brings the header up to date with an answer of /studio/now. */
export function atWork(now) {
  const link = document.querySelector(".top .now");
  if (!link) return;
  const part = (name) => link.querySelector(`[data-now="${name}"]`);
  const before = { id: link.dataset.id, title: part("title").textContent };
  for (const name of PARTS) say(part(name), now[name]);
  show(part("share"), now.share !== null);
  if (now.share !== null) put(part("share"), "value", now.share);
  put(link, "href", now.id ? `/watch?run=${encodeURIComponent(now.id)}` : "/history");
  show(link, now.id || now.waiting);
  if (now.id === before.id) return;
  put(link, "data-id", now.id);
  if (document.querySelector('[data-live="watch"]')) return;
  const words = JSON.parse(link.dataset.words);
  const said = [before.id && words.ended.replace("{title}", before.title), now.id && words.begun.replace("{title}", now.title)];
  say(document.querySelector('[data-now="said"]'), said.filter(Boolean).join(" "));
}
