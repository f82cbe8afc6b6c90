/* What this page sends to the studio: text in Gradio's hidden fields, and uploaded files. */

const UPLOAD = "/studio/upload";
const early = [];
let count = 0;

/** Whether the studio has answered once: until then Gradio hears nothing, and its first answer writes the draft's fields. */
const answered = () => document.querySelector("#summary h2 ~ *");

/** Writes into a Gradio text field as a person would, as soon as it is heard. */
export function type(id, text) {
  early.push([id, text]);
  heard();
}

/** To be called when the page has changed. */
export function heard() {
  while (early.length && answered()) write(...early.shift());
}

function write(id, text) {
  const input = document.querySelector(`#${id} textarea, #${id} input`);
  if (!input) return;
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Tells through a hidden field that a button was pressed; a running number makes each press a change. */
export function tell(name, value, form = {}) {
  count += 1;
  type(`act-${name}`, JSON.stringify({ value, form, n: `${Date.now()}-${count}` }));
}

/** All named fields within an element. */
export function gathered(form) {
  return Object.fromEntries([...(form?.querySelectorAll("[name]") ?? [])].map((field) => [field.name, field.value]));
}

/** The answer's values; empty where it is not JSON, as after an unforeseen fault. */
function read(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/** Removes the fault of an upload when another file is chosen. */
export function forgiven(zone) {
  zone.removeAttribute("data-fault");
  zone.querySelector(".drop-line").textContent = "";
}

/** Sends one file; the line in the zone says how far it is, and the fault where there is one. */
export function send(zone, file, done) {
  const bar = zone.querySelector("progress");
  const line = zone.querySelector(".drop-line");
  const request = new XMLHttpRequest();
  const end = (words) => {
    if (bar) bar.hidden = true;
    line.textContent = words;
    zone.toggleAttribute("data-fault", Boolean(words));
  };
  request.open("PUT", UPLOAD);
  request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
  request.upload.onprogress = (event) => {
    if (bar && event.lengthComputable) bar.value = event.loaded / event.total;
  };
  request.onerror = () => end(zone.dataset.failed);
  request.onload = () => {
    const answer = read(request.responseText);
    if (request.status === 200) {
      end("");
      done(answer.id);
    } else end([answer.message, answer.hint].filter(Boolean).join(" ") || zone.dataset.failed);
  };
  forgiven(zone);
  if (bar) Object.assign(bar, { value: 0, hidden: false });
  line.textContent = `${zone.dataset.busy} ${file.name}`;
  request.send(file);
}
