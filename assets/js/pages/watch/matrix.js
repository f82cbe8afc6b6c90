/* The confusion matrix of the newest evaluation, as a table that is coloured: a line a right label, a column a given one.
   A cell's colour is its share of its line. The largest mistakes, and the cell that is pointed at, are said in sentences. */

import { list, make, say, show } from "../../dom.js";

const FEW = 6;
const SAID = 5;

/** Brings the page's matrix up to date; `told`: {key, about, labels, counts}, or null where there is none; no counts are
    too many labels, as `about` says. */
export function matrix(page, told) {
  const box = page.get("matrix");
  show(box, told);
  if (!told || box.dataset.key === told.key) return;
  box.dataset.key = told.key;
  const { labels, counts } = told;
  const { matrix: words } = page.words;
  const cells = counts.map((line, right) => line.map((count, given) => cell(count, sum(line), labels, right, given, words)));
  const axis = (text, attributes) => make("th", { scope: "col", class: "axis", ...attributes }, text);
  const name = (label, scope) => make("th", { scope, title: label }, make("span", {}, label));
  show(page.get("matrix-drawn"), counts.length);
  box.classList.toggle("many", labels.length > FEW);
  page.get("matrix-head").replaceChildren(
    make("tr", {}, make("td"), axis(words.given, { scope: "colgroup", colspan: labels.length })),
    make("tr", {}, axis(words.right), ...labels.map((label) => name(label, "col")), axis(words.recall)));
  const body = page.get("matrix-body");
  body.replaceChildren(...counts.map((line, right) => make("tr", {}, name(labels[right], "row"), ...cells[right].map(({ drawn }) => drawn), recall(line, right))));
  body.onpointerover = body.onclick = ({ target }) => say(page.get("matrix-said"), target.closest("td")?.dataset.said);
  say(page.get("matrix-about"), told.about);
  say(page.get("matrix-said"), "");
  const wrong = cells.flat().filter((one) => one.wrong && one.count).sort((a, b) => b.count - a.count).slice(0, SAID);
  show(page.get("matrix-most"), wrong.length);
  list(page.get("matrix-pairs"), wrong, () => make("li"), (item, { said }) => say(item, said));
}

/** The root of the share colours it, so that a few mistakes among many rows are seen. */
function cell(count, all, labels, right, given, words) {
  const values = { count: whole(count), all: whole(all), right: labels[right], given: labels[given] };
  const said = words.cell.replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const wrong = right !== given;
  const drawn = make("td", { class: count ? (wrong ? "wrong" : "right") : "zero", "data-said": said }, whole(count));
  drawn.style.setProperty("--share", `${Math.round(100 * Math.sqrt(count / (all || 1)))}%`);
  return { drawn, said, count, wrong };
}

/** The share of a label's rows that were given it. */
function recall(line, right) {
  const all = sum(line);
  return make("td", { class: "recall" }, all ? `${Math.round((100 * line[right]) / all)}%` : "–");
}

const sum = (line) => line.reduce((total, count) => total + count, 0);

const whole = (count) => count.toLocaleString("en");
