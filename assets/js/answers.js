/* Questions to models: a form, and cards in which each answer grows. */

import { make, say, show } from "./dom.js";

const KEPT = 12;

/** Calls `work(prompt, signal)` when the form is sent, also by Enter; one at a time, until it is cancelled, also by
    Escape. Gives what does other work of this kind: `go(task)`, with `go.stop()`; `told` hears whether one is going on. */
export function asks(page, form, work, told = () => {}) {
  let busy = null;
  const working = (controller) => {
    busy = controller;
    page.get("send").disabled = Boolean(busy);
    show(page.get("cancel"), busy);
    told(Boolean(busy));
  };
  const go = async (task) => {
    if (busy) return;
    const mine = new AbortController();
    working(mine);
    await page.attempt(() => task(mine.signal));
    if (busy === mine) working(null);
  };
  go.stop = () => busy?.abort();
  const send = (event) => {
    event.preventDefault();
    const prompt = page.get("prompt").value.trim();
    if (prompt) go((signal) => work(prompt, signal));
  };
  form.addEventListener("submit", send);
  page.get("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") go.stop(); });
  page.get("cancel").addEventListener("click", go.stop);
  return go;
}

/** How the form's fields want it answered. A stop sequence a line, with `\\n` for a new line. */
export function settings(page) {
  const number = (name, otherwise) => (page.get(name).value === "" ? otherwise : Number(page.get(name).value));
  const stop = page.get("stop").value.split("\n").filter((line) => line.trim()).map((line) => line.replaceAll("\\n", "\n")).slice(0, 8);
  return { max_new_tokens: number("length", 128) || 128, temperature: number("temperature", 0), top_p: number("top_p", 1) || 1, seed: number("seed", 0), stop };
}

/** A new card on top of the earlier ones: the question, and a column an answer. `columns`: {key, kind, title, text}; one
    with a text is whole, the others wait for theirs. */
export function exchange(box, prompt, columns, words) {
  const waiting = new Map();
  const drawn = columns.map(({ key, kind, title, text }) => {
    const place = make("p", { class: "answer-text", "data-wait": text === undefined }, text ?? words.turn ?? words.waiting);
    waiting.set(key, place);
    return make("div", { class: `answer answer-${kind}` }, make("h3", {}, title), place);
  });
  const note = make("p", { class: "answer-note", role: "status" });
  box.prepend(make("article", { class: "exchange" }, make("p", { class: "question" }, prompt), note, make("div", { class: "answers" }, ...drawn)));
  while (box.children.length > KEPT) box.lastElementChild.remove();
  const settle = (key, text) => {
    waiting.get(key)?.removeAttribute("data-wait");
    say(waiting.get(key), text);
  };
  return {
    note: (text) => say(note, text),
    begin: (key) => say(waiting.get(key), words.waiting),
    add: (key, { text, done, scores }) => {
      settle(key, text || (done ? words.nothing : words.waiting));
      if (scores) waiting.get(key).replaceWith(bars(text, scores));
    },
    fault: settle,
    finish: () => { for (const [key, place] of waiting) if (place.hasAttribute("data-wait")) settle(key, words.no_answer); },
  };
}

/** Probabilities as bars, the largest first; a number as itself. */
function bars(text, scores) {
  if (scores.length === 1) return make("p", { class: "score" }, text);
  const sorted = [...scores].sort((a, b) => b[1] - a[1]);
  const row = ([name, value]) => {
    const bar = make("i");
    bar.style.width = `${(100 * value).toFixed(1)}%`;
    return make("li", {}, make("span", { title: name }, name), make("span", { class: "score-bar", "aria-hidden": "true" }, bar), make("b", {}, `${(100 * value).toFixed(1)}%`));
  };
  return make("ol", { class: "scores scroll-y", tabindex: sorted.length > 8 ? 0 : null }, ...sorted.map(row));
}
