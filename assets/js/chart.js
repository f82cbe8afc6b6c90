/* One chart: an SVG picture of several series over training steps.

   It is made once; afterwards only attributes change, so nothing flickers or grows. The same numbers stand in a table
   below it.

   A series reads either a column of the run's buckets ({low, high} a bucket; `smooth` drawn strongly over a faint `raw`)
   or a list of [step, value] points, drawn with dots. A series without values takes no space and may come late. */

import { Marks, outliers } from "./chart/marks.js";
import { savingMenu } from "./chart/saving.js";
import { draw, list, make, put, puts, say, show } from "./dom.js";
import { UNKNOWN, axis, path, pixels, range, ticks, written } from "./scale.js";

const ROWS = 40;
const NEAR = 200;
const TOLD_MS = 10_000;
/** Kinds of readings whose outliers are clipped. */
const NOISY = new Set(["loss", "number", "speed"]);
const PAD = { left: 62, right: 14, top: 26, bottom: 26 };

export class Chart {
  /** `spec`: {key, title, axis, format, good, log, base, top, best, series: [{key, label, tone, points}]}; `group`: {hover,
      zoom, words, csv}. */
  constructor(host, spec, group) {
    Object.assign(this, { host, spec, group, log: false, model: null, step: null, frame: 0, picked: null, seen: true, stale: true, width: 0, height: 0, off: new Set(), told: -TOLD_MS });
    this.build();
    new IntersectionObserver((entries) => this.see(entries.at(-1).isIntersecting), { rootMargin: `${NEAR}px` }).observe(this.plot);
    new ResizeObserver((entries) => this.resize(entries.at(-1).contentRect)).observe(this.plot);
  }

  build() {
    const { spec, group } = this;
    this.legend = make("span", { class: "chart-legend" });
    this.at = make("span", { class: "chart-at" });
    this.logButton = make("button", { type: "button", class: "chart-log", "aria-pressed": "false", onclick: () => this.setLog(!this.log) }, group.words.log);
    show(this.logButton, spec.log);
    this.svg = draw("svg", { class: "chart-svg", tabindex: 0, role: "group", "aria-label": `${spec.title}. ${group.words.keys}` });
    this.said = make("p", { class: "sr-only", role: "status" }); // what the arrow keys read
    this.empty = make("p", { class: "chart-empty" }, group.words.empty);
    this.plot = make("div", { class: "chart-plot" }, this.svg, this.empty);
    this.table = this.buildTable();
    this.host.classList.add("chart");
    this.host.append(
      make("div", { class: "chart-head" }, make("h3", {}, spec.title), this.at, this.logButton, savingMenu(this)),
      this.legend,
      this.plot, this.said, this.table,
    );
    this.parts = spec.series.map((series) => this.buildSeries(series));
    this.buildFrame();
    this.listen();
  }

  buildSeries(series) {
    const swatch = make("span", { class: `swatch tone-${series.tone}`, "aria-hidden": "true" });
    const value = make("b", {}, UNKNOWN);
    const parts = [swatch, make("span", { class: "chart-label" }, series.label), value];
    const several = this.spec.series.length > 1;
    const item = several
      ? make("button", { type: "button", class: "chart-item", "aria-pressed": "true", onclick: () => this.toggle(series) }, ...parts)
      : make("span", { class: "chart-item" }, ...parts);
    this.legend.append(item);
    const shape = (kind) => draw("path", { class: `${kind} tone-${series.tone}`, fill: "none" });
    return { series, item, value, faint: shape("faint"), line: shape("line"), dots: shape("dots"), hover: draw("circle", { class: `spot tone-${series.tone}`, r: 4 }) };
  }

  buildFrame() {
    const id = `clip-${Math.random().toString(36).slice(2)}`;
    this.clip = draw("rect");
    this.rows = Array.from({ length: 7 }, () => ({ line: draw("line", { class: "grid" }), text: draw("text", { class: "tick", "text-anchor": "end", dy: "0.32em" }) }));
    this.columns = Array.from({ length: 9 }, () => draw("text", { class: "tick", "text-anchor": "middle" }));
    const { words } = this.group;
    this.titles = [draw("text", { class: "tick", x: 0, y: 12 }, this.spec.axis ?? words["axis.loss"]), draw("text", { class: "tick", x: 0 }, words.step)];
    this.marks = new Marks(this.parts);
    this.cross = draw("line", { class: "cross" });
    this.brush = draw("rect", { class: "brush" });
    this.best = draw("circle", { class: "best", r: 5.5, fill: "none" });
    this.forecast = draw("line", { class: "forecast" });
    this.forecastText = draw("text", { class: "best-text", "text-anchor": "end" }, this.group.words.forecast);
    this.bestText = draw("text", { class: "best-text", "text-anchor": "middle" }, this.group.words.best);
    const inside = draw("g", { "clip-path": `url(#${id})` }, ...this.parts.flatMap((part) => [part.faint, part.line, part.dots]), this.brush);
    const marks = [this.forecast, this.forecastText, this.best, this.bestText, this.cross, ...this.parts.map((part) => part.hover)];
    for (const mark of [this.brush, ...marks]) put(mark, "visibility", "hidden");
    this.svg.append(draw("defs", {}, draw("clipPath", { id }, this.clip)), ...this.rows.flatMap((row) => [row.line, row.text]), ...this.columns, ...this.titles, inside, ...this.marks.nodes, ...marks);
  }

  buildTable() {
    const head = make("tr", {}, make("th", { scope: "col" }, this.group.words.step), ...this.spec.series.map((series) => make("th", { scope: "col" }, series.label)));
    this.body = make("tbody");
    const caption = make("caption", { class: "sr-only" }, this.spec.title);
    const box = make("div", { class: "chart-rows", tabindex: 0, role: "region", "aria-label": this.spec.title }, make("table", {}, caption, make("thead", {}, head), this.body));
    return make("details", { class: "chart-table", ontoggle: () => this.fillTable() }, make("summary", {}, this.group.words.table), box);
  }

  /** New numbers: {steps, raw, smooth, points, last, best, begin, until}. Drawn at the next frame. */
  update(model) {
    this.model = model;
    this.stale ||= this.differs(model);
    show(this.host, this.spec.best || this.parts.some(({ series }) => this.column(series)));
    this.redraw();
    if (!this.seen) this.sayLatest();
    this.tell();
    this.fillTable();
  }

  /** Whether the numbers make another picture than the painted one: half a pixel further on, or other marks. */
  differs(model) {
    const { painted, spanX, spanY, inner } = this;
    if (!painted || model.shape === undefined || model.shape !== painted.shape) return true;
    if ((model.until - painted.until) * (inner.right - inner.left) >= 0.5 * (spanX[1] - spanX[0])) return true;
    const marks = (one) => JSON.stringify([one.points, one.best, one.forecast, one.marks]);
    if (marks(model) !== marks(painted)) return true;
    return this.parts.some(({ series }) => {
      const [column, before] = [this.column(series), this.column(series, painted)];
      if (!column || !before) return column !== before;
      return [column.low.at(-1), column.high.at(-1)].some((value) => value !== null && (value < spanY[0] || value > spanY[1]));
    });
  }

  /** What its upright axis is called, where that depends on the run. */
  named(axis) {
    say(this.titles[0], axis);
  }

  isOn(series) {
    return !this.off.has(series.key);
  }

  /** Takes a line out of the picture, or in again; of the last one all come back. */
  toggle({ key }) {
    if (!this.off.delete(key)) this.off.add(key);
    if (this.parts.every(({ series, item }) => item.hidden || !this.isOn(series))) this.off.clear();
    for (const { series, item } of this.parts) put(item, "aria-pressed", this.isOn(series));
    this.stale = true;
    this.redraw();
  }

  /** The picture in words: of each line its first, best and last reading; a few times a minute. */
  tell() {
    if (performance.now() - this.told < TOLD_MS) return;
    this.told = performance.now();
    const { words } = this.group;
    const said = this.parts.flatMap(({ series }) => {
      const points = this.points(series) ?? this.middles(series);
      if (!points.length) return [];
      const by = [...points].sort((a, b) => a[1] - b[1]);
      const [low, high] = [by[0], by.at(-1)];
      const write = ([, value]) => this.write(value, value);
      const facts = { label: series.label, first: write(points[0]), last: write(points.at(-1)), low: write(low), high: write(high), low_step: written.step(low[0]), high_step: written.step(high[0]) };
      return [words[`alt.${this.spec.good ?? "low"}`].replace(/\{(\w+)\}/g, (_, name) => facts[name])];
    });
    put(this.svg, "aria-label", [`${this.spec.title}.`, ...said, words.keys].join(" "));
  }

  /** The points of a series that is a list of them, else null. */
  points({ points, key }) {
    return points ? this.model.points[key] ?? [] : null;
  }

  middles(series) {
    const column = this.column(series);
    return column ? this.model.steps.flatMap((step, at) => (column.low[at] === null || column.low[at] === undefined ? [] : [[step, (column.low[at] + column.high[at]) / 2]])) : [];
  }

  /** The newest readings as text, for screen readers. */
  sayLatest() {
    for (const { series, value } of this.parts) {
      const [low, high] = this.latest(series);
      say(value, this.write(low, high));
    }
  }

  setLog(on) {
    this.log = on;
    this.stale = true;
    put(this.logButton, "aria-pressed", on);
    this.redraw();
  }

  /** Marks the step under the pointer of any chart of the group; null removes the mark. */
  hover(step) {
    this.step = step;
    this.redraw();
  }

  /** A chart off the screen is painted when it comes near. */
  see(seen) {
    this.seen = seen;
    this.redraw();
  }

  /** Called after layout and before painting. The size is kept: asking for it between two charts' changes would lay the
      page out for each. */
  resize({ width, height }) {
    Object.assign(this, { width, height, stale: true });
    const { top, bottom } = this.plot.getBoundingClientRect();
    if (width && top < innerHeight + NEAR && bottom > -NEAR) this.seen = true;
    if (this.seen) this.paint();
  }

  redraw() {
    if (!this.frame && this.seen) this.frame = requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  /** Only the mark, where only the pointer moved. */
  paint() {
    if (!this.model || this.width < 60) return;
    if (this.stale) this.paintAll();
    this.paintHover();
  }

  paintAll() {
    const { width, height } = this;
    this.stale = false;
    this.painted = this.model;
    this.inner = { left: PAD.left, right: width - PAD.right, top: PAD.top, bottom: height - PAD.bottom };
    const spanY = range(this.visible(), this.log, this.spec.base, this.spec.top);
    const known = spanY !== null;
    show(this.empty, !known);
    this.spanX = [this.model.begin, Math.max(this.model.until, this.model.begin + 1)];
    this.spanY = spanY ?? [0, 1];
    this.x = pixels(this.spanX, this.inner.left, this.inner.right, false);
    this.y = pixels(this.spanY, this.inner.bottom, this.inner.top, this.log);
    put(this.svg, "viewBox", `0 0 ${width} ${height}`);
    this.paintFrame(known);
    this.parts.forEach((part) => this.paintSeries(part));
    const clipped = known && this.clips();
    const lines = clipped ? this.parts.filter(({ series }) => !series.points && this.isOn(series)).map(({ series }) => [series.key, this.model.raw[series.key]]) : [];
    this.marks.paint(known ? this.model : { steps: [] }, lines, this);
    this.paintBest();
    this.paintForecast();
  }

  clips() {
    return !this.log && NOISY.has(this.spec.format);
  }

  /** All values of the picture, without the few that stand far out. */
  visible() {
    const { begin, until, forecast } = this.model;
    const values = this.spec.forecast && forecast ? [forecast] : [];
    for (const { series } of this.parts.filter((part) => this.isOn(part.series))) {
      const column = series.points ? null : this.column(series);
      const raw = this.model.raw[series.key];
      const far = column && raw && this.clips() ? outliers(raw) : new Set(); // smoothing would smear them
      if (far.size) raw.low.forEach((low, index) => far.has(index) || values.push(low, raw.high[index]));
      else if (column) values.push(...column.low, ...(column.high === column.low ? [] : column.high));
      for (const [step, value] of this.points(series) ?? []) if (step >= begin && step <= until) values.push(value);
    }
    return values;
  }

  /** What a series draws strongly: its smoothed column, else its raw values. */
  column(series, { smooth, raw } = this.model) {
    const { middle } = smooth[series.key] ?? {};
    return middle ? { low: middle, high: middle } : raw[series.key];
  }

  paintFrame(known) {
    const { left, right, top, bottom } = this.inner;
    for (const title of this.titles) put(title, "visibility", known ? "visible" : "hidden");
    put(this.titles[1], "y", bottom + 19);
    puts(this.clip, { x: left - 3, y: top - 4, width: right - left + 6, height: bottom - top + 8 });
    const rows = known ? ticks(this.spanY, Math.max(2, Math.min(5, Math.floor((bottom - top) / 36))), this.log).slice(0, this.rows.length) : [];
    this.rows.forEach(({ line, text }, index) => {
      const value = rows[index];
      put(line, "visibility", value === undefined ? "hidden" : "visible");
      if (value === undefined) return say(text, "");
      const y = this.y(value).toFixed(1);
      puts(line, { x1: left, x2: right, y1: y, y2: y });
      puts(text, { x: left - 8, y });
      say(text, axis[this.spec.format](value));
    });
    const columns = known ? ticks(this.spanX, Math.min(8, Math.floor((right - left) / 90)), false).filter(Number.isInteger).slice(0, this.columns.length) : [];
    this.columns.forEach((text, index) => {
      const value = columns[index];
      say(text, value === undefined ? "" : written.step(value));
      if (value === undefined) return;
      const x = this.x(value);
      const atEdge = x > this.width - 30;
      puts(text, { "text-anchor": atEdge ? "end" : "middle", x: (atEdge ? right + 8 : x).toFixed(1), y: bottom + 19 });
    });
  }

  paintSeries({ series, item, faint, line, dots }) {
    const points = this.points(series);
    const raw = this.model.raw[series.key];
    const strong = this.column(series);
    show(item, points ? points.length : raw);
    if (!this.isOn(series)) return [line, dots, faint].forEach((shape) => put(shape, "d", ""));
    if (points) {
      put(line, "d", points.map(([step, value], index) => `${index ? "L" : "M"}${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`).join(""));
      put(dots, "d", points.map(([step, value]) => `M${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}h0`).join(""));
      return;
    }
    const trace = (column) => (column ? path(this.model.steps, column, this.x, this.y) : "");
    put(line, "d", trace(strong));
    put(faint, "d", strong === raw ? "" : trace(raw));
  }

  paintBest() {
    const { best } = this.model; // its step, its value, and the line that it is on
    const seen = best && this.parts.some(({ series }) => series.key === best[2] && this.isOn(series)) && best[1] !== null && best[0] >= this.spanX[0] && best[0] <= this.spanX[1];
    for (const node of [this.best, this.bestText]) put(node, "visibility", seen ? "visible" : "hidden");
    if (!seen) return;
    const [x, y] = [this.x(best[0]), this.y(best[1])];
    const { left, right, top } = this.inner;
    puts(this.best, { cx: x.toFixed(1), cy: y.toFixed(1) });
    puts(this.bestText, { x: Math.min(Math.max(x, left + 24), right - 24).toFixed(1), y: (y - top < 22 ? y + 20 : y - 12).toFixed(1) });
  }

  /** The forecast, as a line across. */
  paintForecast() {
    const planned = this.spec.forecast && this.model.steps.length ? this.model.forecast : null;
    for (const node of [this.forecast, this.forecastText]) put(node, "visibility", planned ? "visible" : "hidden");
    if (!planned) return;
    const { left, right, top } = this.inner;
    const y = this.y(planned);
    puts(this.forecast, { x1: left, x2: right, y1: y.toFixed(1), y2: y.toFixed(1) });
    puts(this.forecastText, { x: right, y: (y - top < 16 ? y + 14 : y - 5).toFixed(1) });
  }

  paintHover() {
    const reading = this.step === null ? null : this.reading(this.step);
    const happened = reading ? this.happened(reading) : [];
    say(this.at, reading ? [`${this.group.words.step} ${written.step(reading.step)}`, ...happened].join(" · ") : "");
    put(this.at, "title", happened.join(" · "));
    put(this.cross, "visibility", reading ? "visible" : "hidden");
    if (reading) {
      const x = this.x(reading.step).toFixed(1);
      puts(this.cross, { x1: x, x2: x, y1: this.inner.top, y2: this.inner.bottom });
    }
    this.parts.forEach(({ series, value, hover }) => {
      const [low, high, step] = reading ? reading.of(series) : this.latest(series);
      say(value, this.write(low, high));
      const seen = reading && low !== null && this.isOn(series);
      put(hover, "visibility", seen ? "visible" : "hidden");
      if (seen) puts(hover, { cx: this.x(step).toFixed(1), cy: this.y((low + high) / 2).toFixed(1) });
    });
  }

  /** What stands at a reading beside its values: a mark, and readings beyond the scale. */
  happened(reading) {
    const off = this.parts.map(({ series }) => this.marks.beyond.get(`${series.key} ${reading.index}`)).filter((value) => value !== undefined);
    const near = this.marks.near(this.x(this.step));
    return [...(near ? [near] : []), ...off.map((value) => this.group.words.off.replace("{value}", this.write(value, value)))];
  }

  write(low, high) {
    if (low === null) return UNKNOWN;
    const [from, to] = [low, high].map(written[this.spec.format]);
    const unit = to.slice(to.indexOf(" "));
    if (from === to) return to;
    return `${to.includes(" ") && from.endsWith(unit) ? from.slice(0, -unit.length) : from} … ${to}`;
  }

  latest(series) {
    const points = this.points(series);
    const value = (points ? points.at(-1)?.[1] : this.model.last[series.key]) ?? null;
    return [value, value, 0];
  }

  /** The values of the bucket nearest to a step; of a point series the last point up to it. */
  reading(step) {
    const { steps } = this.model;
    if (!steps.length) return null;
    let index = steps.findIndex((at) => at >= step);
    if (index < 0) index = steps.length - 1;
    else if (index > 0 && step - steps[index - 1] < steps[index] - step) index -= 1;
    const of = (series) => {
      if (series.points) {
        const [at, value] = this.points(series).findLast(([at]) => at <= steps[index]) ?? [0, null];
        return [value, value, at];
      }
      const column = this.column(series);
      return [column?.low[index] ?? null, column?.high[index] ?? null, steps[index]];
    };
    return { step: steps[index], index, of };
  }

  fillTable() {
    if (!this.table.open || !this.model) return;
    const { steps } = this.model;
    const stride = Math.max(1, Math.ceil(steps.length / ROWS));
    const rows = steps.filter((_, index) => index % stride === 0 || index === steps.length - 1);
    list(this.body, rows, () => make("tr", {}, make("th", { scope: "row" }), ...this.parts.map(() => make("td"))), (row, step) => {
      const reading = this.reading(step);
      say(row.children[0], written.step(step));
      this.parts.forEach(({ series }, index) => { const [low, high] = reading.of(series); say(row.children[index + 1], this.write(low, high)); });
    });
  }

  listen() {
    const stepAt = (event) => {
      const share = (event.clientX - this.svg.getBoundingClientRect().left - this.inner.left) / (this.inner.right - this.inner.left);
      return this.spanX[0] + Math.min(Math.max(share, 0), 1) * (this.spanX[1] - this.spanX[0]);
    };
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.inner) return;
      if (this.picked) this.paintBrush(this.picked.x, event.clientX);
      this.group.hover(stepAt(event));
    });
    this.svg.addEventListener("pointerleave", () => { if (!this.picked) this.group.hover(null); });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType !== "mouse" || !this.inner) return;
      this.picked = { x: event.clientX, step: stepAt(event) };
      this.svg.setPointerCapture(event.pointerId);
    });
    const release = (event, keep) => {
      const from = this.picked;
      this.picked = null;
      put(this.brush, "visibility", "hidden");
      if (keep && from && Math.abs(event.clientX - from.x) > 8) this.group.zoom(...[from.step, stepAt(event)].sort((a, b) => a - b));
    };
    this.svg.addEventListener("pointerup", (event) => release(event, true));
    this.svg.addEventListener("pointercancel", (event) => release(event, false));
    this.svg.addEventListener("dblclick", () => this.group.zoom(null, null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => this.group.hover(null));
  }

  paintBrush(from, to) {
    const left = this.svg.getBoundingClientRect().left;
    const [a, b] = [from - left, to - left].sort((p, q) => p - q);
    puts(this.brush, { x: a, width: b - a, y: this.inner.top, height: this.inner.bottom - this.inner.top, visibility: "visible" });
  }

  /** Arrows move the reading, + and − zoom about it, Escape shows the whole run. */
  key(event) {
    if (!this.model?.steps.length) return;
    const { steps } = this.model;
    const at = this.step === null ? steps.length - 1 : this.reading(this.step).index;
    const [from, to] = this.spanX;
    const half = (to - from) / 4;
    const moves = {
      ArrowLeft: () => this.group.hover(steps[Math.max(at - 1, 0)]),
      ArrowRight: () => this.group.hover(steps[Math.min(at + 1, steps.length - 1)]),
      Home: () => this.group.hover(steps[0]),
      End: () => this.group.hover(steps.at(-1)),
      "+": () => half >= 1 && this.group.zoom(Math.max(from, steps[at] - half), Math.min(to, steps[at] + half)),
      "-": () => this.group.zoom(from - 2 * half, to + 2 * half),
      Escape: () => this.group.zoom(null, null),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
    const reading = this.step === null ? null : this.reading(this.step);
    const values = reading ? this.parts.filter(({ series }) => this.isOn(series)).map(({ series }) => `${series.label} ${this.write(...reading.of(series))}`) : [];
    say(this.said, reading ? [`${this.group.words.step} ${written.step(reading.step)}`, ...values, ...this.happened(reading)].join(", ") : "");
  }
}
