/* A chart as a file: a picture that needs no style sheet, and its lines as numbers. */

import { draw, make } from "../dom.js";

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "font-size", "font-weight", "font-family", "paint-order"];
const HEAD = 64;
const EDGE = 16;
const SHARP = 2;

/** The menu of a chart's head. `chart`: a Chart; `csv(spec)` of its group is the address of its numbers, if there is one. */
export function savingMenu(chart) {
  const { words, csv } = chart.group;
  const name = `luthier-${chart.spec.key}`;
  const ways = {
    png: async () => keep(await pixels(picture(chart)), `${name}.png`),
    svg: () => keep(new Blob([written(picture(chart))], { type: "image/svg+xml" }), `${name}.svg`),
    csv: () => (csv ? follow(csv(chart.spec), `${name}.csv`) : keep(new Blob([table(chart)], { type: "text/csv" }), `${name}.csv`)),
  };
  const buttons = Object.entries(ways).map(([way, work]) => {
    const label = words[`save.${way === "csv" && !csv ? "drawn" : way}`];
    return make("button", { type: "button", onclick: async () => { await work(); menu.open = false; menu.firstElementChild.focus(); } }, label);
  });
  const menu = make("details", { class: "chart-save" }, make("summary", { "aria-label": `${words.save}: ${chart.spec.title}` }, words.save), make("div", {}, ...buttons));
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape" && menu.open) { menu.open = false; menu.firstElementChild.focus(); } });
  menu.addEventListener("focusout", (event) => { if (!menu.contains(event.relatedTarget)) menu.open = false; });
  return menu;
}

/** The chart with its title and legend as an SVG element of its own, in the colours that it has now. */
function picture(chart) {
  const { svg, host, width, height, spec } = chart;
  const ink = getComputedStyle(host);
  const font = { "font-family": ink.fontFamily, fill: ink.color };
  const whole = draw("svg", { width: width + 2 * EDGE, height: height + HEAD + EDGE });
  whole.append(draw("rect", { width: "100%", height: "100%", fill: ink.backgroundColor }));
  whole.append(draw("text", { x: EDGE, y: 26, "font-size": 16, "font-weight": 600, ...font }, spec.title));
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = `14px ${ink.fontFamily}`;
  let x = EDGE;
  for (const { item } of chart.parts.filter((part) => !part.item.hidden && chart.isOn(part.series))) {
    const text = `${item.querySelector(".chart-label").textContent} ${item.querySelector("b").textContent}`;
    whole.append(draw("rect", { x, y: 43, width: 12, height: 3, rx: 1.5, fill: getComputedStyle(item.querySelector(".swatch")).backgroundColor }));
    whole.append(draw("text", { x: x + 18, y: 49, "font-size": 14, ...font }, text));
    x += 36 + measure.measureText(text).width;
  }
  const drawn = draw("g", { transform: `translate(${EDGE} ${HEAD - 4})` });
  for (const node of svg.children) drawn.append(plain(node));
  whole.append(drawn);
  return whole;
}

/** A node with the looks of the page as attributes; what is not to be seen is left out. */
function plain(node) {
  const copy = node.cloneNode(false);
  const looks = getComputedStyle(node);
  copy.removeAttribute("class");
  if (node.tagName !== "defs" && !node.closest("defs")) for (const name of KEPT) copy.setAttribute(name, looks.getPropertyValue(name));
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.cloneNode());
    else if (node.closest("defs") || getComputedStyle(child).visibility !== "hidden") copy.append(plain(child));
  }
  return copy;
}

const written = (element) => `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(element)}`;

async function pixels(element) {
  const address = URL.createObjectURL(new Blob([written(element)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = make("canvas", { width: SHARP * image.width, height: SHARP * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** The numbers of the picture, one line a place on its axis; a bucket of several steps is its middle. */
function table({ model, parts, column }) {
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const points = Object.fromEntries(parts.filter(({ series }) => series.points).map(({ series }) => [series.key, new Map(model.points[series.key] ?? [])]));
  const steps = [...new Set([...model.steps, ...Object.values(points).flatMap((known) => [...known.keys()])])].sort((a, b) => a - b);
  const index = new Map(model.steps.map((step, at) => [step, at]));
  const value = (series, step) => {
    if (series.points) return points[series.key].get(step) ?? "";
    const [values, at] = [column(series, model), index.get(step)];
    return values && at !== undefined && values.low[at] !== null ? (values.low[at] + values.high[at]) / 2 : "";
  };
  const lines = steps.map((step) => [step, ...parts.map(({ series }) => value(series, step))].join(","));
  return `${["step", ...parts.map(({ series }) => quoted(series.label))].join(",")}\n${lines.join("\n")}\n`;
}

function keep(blob, name) {
  const address = URL.createObjectURL(blob);
  follow(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function follow(href, download) {
  make("a", { href, download }).click();
}
