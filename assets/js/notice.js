/* The studio is asked here, by every page, what is at work and what has ended: for the header (now.js), and to tell of an
   end on the desktop and by a sound, each off until it is chosen. Several open pages tell once. */

import { ask } from "./ask.js";
import { atWork } from "./now.js";

const PAUSE = { busy: 4000, idle: 8000, hidden: 20_000 };
const STALE = 600_000;
const NOTES = { finished: [523.25, 783.99], other: [392, 311.13] };
const HERE = ["127.0.0.1", "localhost", "[::1]"];

/** What this browser keeps; without storage it lasts as long as the page. */
const kept = {
  get: (key) => { try { return localStorage.getItem(`luthier.${key}`) ?? ""; } catch { return ""; } },
  set: (key, value) => { try { localStorage.setItem(`luthier.${key}`, value); } catch { /* for this page only */ } },
};
let timer = 0;
let busy = false;

export function notices() {
  for (const one of document.querySelectorAll("[data-notice]")) {
    const name = one.dataset.notice;
    if (name === "tell") { pressed(one); one.addEventListener("click", () => choose(one)); }
    if (name !== "sound") continue;
    one.checked = wanted(name);
    one.addEventListener("change", () => { kept.set(name, one.checked ? "1" : ""); if (one.checked) play("finished"); });
  }
  busy = document.querySelector(".top .now")?.hidden === false;
  document.addEventListener("visibilitychange", () => document.hidden || turn());
  addEventListener("pageshow", (event) => event.persisted && turn());
  again();
}

function wanted(name) {
  return kept.get(name) === "1" && (name !== "tell" || globalThis.Notification?.permission === "granted");
}

const words = (one) => JSON.parse(one.closest("[data-told]").dataset.told);

function pressed(button) {
  const on = wanted("tell");
  button.setAttribute("aria-pressed", on);
  button.textContent = words(button)[on ? "told" : "tell"];
}

/** The button was pressed: the browser asks the person for permission only now. */
async function choose(button) {
  let fault = "";
  const on = button.getAttribute("aria-pressed") !== "true";
  if (on && !globalThis.Notification) fault = words(button).none;
  else if (on && (await Notification.requestPermission()) !== "granted") fault = words(button).denied;
  kept.set("tell", on && !fault ? "1" : "");
  button.closest("[data-told]").querySelector('[data-notice="fault"]').textContent = fault;
  pressed(button);
}

/** A hidden page asks only for somebody who wants to be told. */
function again() {
  clearTimeout(timer);
  const told = wanted("tell") || wanted("sound");
  if (!document.hidden || told) timer = setTimeout(turn, document.hidden ? PAUSE.hidden : busy ? PAUSE.busy : PAUSE.idle);
}

async function turn() {
  clearTimeout(timer);
  try {
    await look(wanted("tell") || wanted("sound"));
  } catch {
    /* the studio is away: the page says so itself */
  }
  again();
}

async function look(told) {
  const before = kept.get("ended");
  const [since, at] = before.split(" ").map(Number);
  const from = told && Date.now() - (at || 0) < STALE ? since || 0 : 0; // what ended long ago is no news
  const answer = await ask(`/studio/now?since=${from}`);
  busy = Boolean(answer.id || answer.waiting);
  atWork(answer);
  if (!told) return;
  const quicker = kept.get("ended") !== before; // another page has told it
  kept.set("ended", `${answer.now} ${Date.now()}`);
  const queueEnds = !busy && kept.get("queued") === "1";
  if (answer.waiting) kept.set("queued", "1");
  else if (!busy) kept.set("queued", "");
  if (!quicker) answer.ended.forEach((run) => tell(run, answer, queueEnds));
}

/** Not on the desktop of the studio itself where that tells already. */
function tell(run, { desktop, queue }, queueEnds) {
  if (wanted("sound")) play(run.state);
  if (!wanted("tell") || (desktop && HERE.includes(location.hostname))) return;
  const body = queueEnds ? `${run.words} ${queue}`.trim() : run.words;
  const said = new Notification(`${run.word}: ${run.title}`, { body, tag: run.id, icon: new URL("../icons/icon-192.png", import.meta.url).href });
  said.onclick = () => { window.focus(); location.assign(`/watch?run=${encodeURIComponent(run.id)}`); };
}

/** Two soft notes: up where it finished, down where it did not. */
function play(state) {
  const context = new AudioContext();
  (NOTES[state] ?? NOTES.other).forEach((pitch, index) => {
    const [tone, volume, from] = [context.createOscillator(), context.createGain(), context.currentTime + index * 0.18];
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.0001, from);
    volume.gain.exponentialRampToValueAtTime(0.15, from + 0.03);
    volume.gain.exponentialRampToValueAtTime(0.0001, from + 0.5);
    tone.connect(volume).connect(context.destination);
    tone.start(from);
    tone.stop(from + 0.55);
  });
  setTimeout(() => context.close(), 1500);
}
