/* Notices when a run ends: on the desktop and by a sound, each off until its box is ticked. Several open pages tell once. */

import { ask } from "./ask.js";

const EVERY = 8000;
const STALE = 600_000;
const NOTES = { finished: [523.25, 783.99], other: [392, 311.13] };

/** What this browser keeps; without storage it lasts as long as the page. */
const kept = {
  get: (key) => { try { return localStorage.getItem(`luthier.${key}`) ?? ""; } catch { return ""; } },
  set: (key, value) => { try { localStorage.setItem(`luthier.${key}`, value); } catch { /* for this page only */ } },
};

export function notices() {
  for (const box of document.querySelectorAll('input[data-notice]')) {
    box.checked = wanted(box.dataset.notice);
    box.addEventListener("change", () => choose(box));
  }
  setInterval(look, EVERY);
}

function wanted(name) {
  return kept.get(name) === "1" && (name !== "tell" || globalThis.Notification?.permission === "granted");
}

/** A box was ticked: the browser asks the person for permission only now. */
async function choose(box) {
  const name = box.dataset.notice;
  const place = box.closest("[data-told]");
  const words = JSON.parse(place.dataset.told);
  let fault = "";
  if (box.checked && name === "tell") {
    if (!globalThis.Notification) fault = words.none;
    else if ((await Notification.requestPermission()) !== "granted") fault = words.denied;
    box.checked = !fault;
  }
  place.querySelector('[data-notice="fault"]').textContent = fault;
  kept.set(name, box.checked ? "1" : "");
  if (box.checked && name === "sound") play("finished");
}

async function look() {
  if (!wanted("tell") && !wanted("sound")) return;
  const before = kept.get("ended");
  const [since, at] = before.split(" ").map(Number);
  const from = Date.now() - (at || 0) < STALE ? since || 0 : 0; // what ended long ago is no news
  try {
    const answer = await ask(`/studio/ended?since=${from}`);
    const quicker = kept.get("ended") !== before; // another page has told it
    kept.set("ended", `${answer.now} ${Date.now()}`);
    if (!quicker) answer.runs.forEach(tell);
  } catch {
    /* the studio is away: the page says so itself */
  }
}

function tell(run) {
  if (wanted("sound")) play(run.state);
  if (!wanted("tell")) return;
  const said = new Notification(`${run.word}: ${run.title}`, { body: run.cause || run.verdict, tag: run.id, icon: "/studio/assets/icons/icon-192.png" });
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
