/* Questions to models: a form, and cards in which each answer grows. */

import { make, say, show } from "./dom.js";

const KEPT = 12;

/** Calls `work(prompt, signal)` when the form is sent, also by Ctrl+Enter; one at a time, until it is cancelled. */
export function asks(page, form, work) {
  let busy = null;
  const working = (controller) => {
    busy = controller;
    page.get("send").disabled = Boolean(busy);
    show(page.get("cancel"), busy);
  };
  const send = async (event) => {
    event.preventDefault();
    const prompt = page.get("prompt").value.trim();
    if (!prompt || busy) return;
    working(new AbortController());
    await page.attempt(() => work(prompt, busy.signal));
    working(null);
  };
  form.addEventListener("submit", send);
  page.get("prompt").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event); });
  page.get("cancel").addEventListener("click", () => busy?.abort());
}

/** How the form's fields want it answered. */
export function settings(page) {
  const number = (name) => Number(page.get(name).value) || 0;
  return { max_new_tokens: number("length") || 128, temperature: number("temperature"), seed: number("seed") };
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
