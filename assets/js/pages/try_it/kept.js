/* What this browser keeps of conversations, for each run; without storage it lasts as long as the page. Bounded: of a
   conversation the last turns, of conversations the last runs. */

const [TURNS, RUNS, CHARACTERS] = [40, 12, 300_000];
const held = new Map();

function get(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`luthier.${key}`)) ?? held.get(key) ?? fallback;
  } catch {
    return held.get(key) ?? fallback;
  }
}

function set(key, value) {
  held.set(key, value);
  try {
    localStorage.setItem(`luthier.${key}`, JSON.stringify(value));
  } catch { /* full or forbidden: for this page only */ }
}

/** The conversation of a run: turns, columns, tally and settings, as far as they are kept. */
export const conversation = (run) => get(`chat.${run}`, {});

/** Keeps it, without the oldest turns where it grows too long. */
export function keep(run, chat) {
  const turns = chat.turns.slice(-TURNS);
  while (turns.length > 1 && JSON.stringify(turns).length > CHARACTERS) turns.shift();
  const runs = [run, ...get("chats", []).filter((other) => other !== run)];
  for (const old of runs.splice(RUNS)) try { localStorage.removeItem(`luthier.chat.${old}`); } catch { /* nothing is kept */ }
  set("chats", runs);
  set(`chat.${run}`, { ...chat, turns });
}

/** How many seconds this base model took to load the last time. */
export const loadSeconds = (base) => get("loads", {})[base] ?? 15;

export function keepLoad(base, seconds) {
  set("loads", Object.fromEntries([[base, seconds], ...Object.entries(get("loads", {})).filter(([other]) => other !== base)].slice(0, RUNS)));
}
