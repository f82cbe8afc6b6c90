/* Numbers to pixels and words: ranges, round ticks, and readings with their units. */

/** What a reading looks like where nothing is known. */
export const UNKNOWN = "–";

const nice = [1, 2, 2.5, 5, 10];

/** The range of all numbers with a margin, or null where there are none. A log scale counts only positive ones; a linear
   one begins at `base` and reaches `top` at least, where they are given. */
export function range(values, log, base, top) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return null;
  if (log) return low === high ? [low / 1.5, high * 1.5] : [low / 1.05, high * 1.05];
  const from = base === undefined ? low : Math.min(low, base);
  const margin = (high - from) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [base === undefined ? from - margin : from, Math.max(high + margin, top ?? -Infinity)];
}

/** At most `count` round numbers within a range. */
export function ticks([low, high], count, log) {
  if (log) return logTicks(low, high, count);
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * nice.find((factor) => factor * power >= rough * 0.999);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9 && values.length < 20; at += 1) values.push(at * step || 0);
  return values;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return ticks([low, high], count, false).filter((value) => value > 0);
  const factors = decades <= 1.5 ? [1, 2, 3, 5] : decades <= 3 ? [1, 3] : [1];
  const stride = Math.max(1, Math.ceil(decades / count));
  const values = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride)
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) values.push(value);
    }
  return values;
}

/** The function from a number to its pixel. On a log scale what is not positive lies outside. */
export function pixels([low, high], from, to, log) {
  if (!log) {
    const factor = (to - from) / (high - low || 1);
    return (value) => from + (value - low) * factor;
  }
  const begin = Math.log(low);
  const factor = (to - from) / (Math.log(high) - begin);
  return (value) => (value > 0 ? from + (Math.log(value) - begin) * factor : from + 50);
}

/** An SVG path through a column: of each bucket first the end that lies nearer to the line so far, then the other. */
export function path(steps, { low, high }, x, y) {
  let drawn = "";
  let before = null;
  for (let index = 0; index < steps.length; index += 1) {
    if (low[index] === null || low[index] === undefined) { before = null; continue; }
    const across = x(steps[index]).toFixed(1);
    const a = y(low[index]);
    const b = high[index] === low[index] ? a : y(high[index]);
    const turned = before !== null && Math.abs(before - b) < Math.abs(before - a);
    const [near, far] = turned ? [b, a] : [a, b];
    drawn += `${before === null ? "M" : "L"}${across} ${near.toFixed(1)}`;
    if (before === null) drawn += "h0";
    if (far !== near) drawn += `L${across} ${far.toFixed(1)}`;
    before = far;
  }
  return drawn;
}

/** Readings as text with their unit, by kind. */
export const written = {
  number: (value) => plain(value, 4),
  loss: (value) => value.toFixed(Math.abs(value) < 10 ? 3 : 1),
  rate: (value) => (value === 0 ? "0" : Math.abs(value) < 0.01 ? value.toExponential(2).replace("e-", "e−") : plain(value, 3)),
  speed: (value) => Math.round(value).toLocaleString("en"),
  bytes: (value) => bytes(value),
  share: (value) => `${Math.round(value * 100)}%`,
  watts: (value) => `${Math.round(value)} W`,
  celsius: (value) => `${Math.round(value)} °C`,
  step: (value) => Math.round(value).toLocaleString("en"),
};

/** Short forms for the axis. */
export const axis = {
  ...written,
  bytes: (value) => (value === 0 ? "0" : bytes(value).replace(/\.?0+ /, (zeros) => (zeros.startsWith(".") ? " " : zeros)).replace(/(\.\d*[1-9])0+ /, "$1 ")),
  number: (value) => plain(value, 3),
  loss: (value) => plain(value, 3),
  rate: (value) => (value === 0 ? "0" : Math.abs(value) < 0.001 ? short(value) : plain(value, 3)),
};

function short(value) {
  return Number(value.toPrecision(3)).toExponential().replace("e-", "e−");
}

function plain(value, digits) {
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toFixed(size < 10 && unit > 0 ? 2 : size < 100 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}
