/* What stands on a chart beside its lines: marks of what happened at a step, and readings beyond the scale. */

import { draw, put } from "../dom.js";

const KINDS = ["break", "correction", "checkpoint"];
const NEAR = 6;
const LEAST = 20;
const LONE = 2;
const REACH = 3;

/** The buckets of a column that stand alone far from all others: what would press the rest into a line. Of a rise that
    lasts, of the first bucket and of few readings nothing is left out. */
export function outliers({ low, high }) {
  const known = low.flatMap((value, index) => (value === null || value === undefined ? [] : [index]));
  if (known.length < LEAST) return new Set();
  const sorted = known.flatMap((index) => [low[index], high[index]]).sort((a, b) => a - b);
  const [least, most] = [0.02, 0.98].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const reach = REACH * (most - least) || Math.abs(most) / 2;
  const out = (at) => at < known.length && (high[known[at]] > most + reach || low[known[at]] < least - reach);
  const found = new Set();
  for (let at = 1, end; at < known.length; at = end + 1) {
    for (end = at; out(end); end += 1);
    if (end > at && end - at <= LONE && !(at === 1 && out(0))) known.slice(at, end).forEach((index) => found.add(index));
  }
  return found;
}

/** The marks of a chart: a path for each kind, and one a series for what lies beyond the scale. */
export class Marks {
  constructor(parts) {
    this.kinds = Object.fromEntries(KINDS.map((kind) => [kind, draw("path", { class: `mark ${kind}` })]));
    this.edges = new Map(parts.map(({ series }) => [series.key, draw("path", { class: `edge tone-${series.tone}` })]));
    this.beyond = new Map();
    this.nodes = [...Object.values(this.kinds), ...this.edges.values()];
  }

  /** `lines`: [key, its raw column or null] of the series that are shown. */
  paint({ marks = [], steps }, lines, { x, y, spanX, spanY, inner }) {
    const { top, bottom } = inner;
    this.shown = marks.filter(([step]) => step >= spanX[0] && step <= spanX[1]).map(([step, kind, words]) => ({ at: x(step), kind, words }));
    const shapes = {
      checkpoint: (at) => `M${at} ${bottom + 1}l3.5 6h-7z`,
      break: (at) => `M${at} ${top}V${bottom}`,
      correction: (at) => `M${at} ${top - 5}l4.5 5 -4.5 5 -4.5 -5z`,
    };
    for (const kind of KINDS) put(this.kinds[kind], "d", this.shown.filter((mark) => mark.kind === kind).map((mark) => shapes[kind](mark.at.toFixed(1))).join(""));
    this.beyond.clear();
    for (const [key, column] of lines) {
      let drawn = "";
      for (const index of column ? outliers(column) : []) {
        const above = column.high[index] > spanY[1];
        if (!above && column.low[index] >= spanY[0]) continue;
        const at = x(steps[index]).toFixed(1);
        drawn += above ? `M${at} ${top - 6}l4 6h-8z` : `M${at} ${bottom}l4 -6h-8z`;
        this.beyond.set(`${key} ${index}`, above ? column.high[index] : column.low[index]);
      }
      put(this.edges.get(key), "d", drawn);
    }
    for (const [key, edge] of this.edges) if (!lines.some(([name]) => name === key)) put(edge, "d", "");
  }

  /** The words of the mark at a place, if there is one near it. */
  near(at) {
    const found = (this.shown ?? []).filter((mark) => Math.abs(mark.at - at) <= NEAR).sort((a, b) => Math.abs(a.at - at) - Math.abs(b.at - at));
    return [...new Set(found.filter((mark) => mark.at === found[0].at).map((mark) => mark.words))].join("; ");
  }
}
