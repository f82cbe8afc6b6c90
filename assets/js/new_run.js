/* New run: a file chosen or dropped goes straight to the studio's disk, the studio's answer to Start is followed, and
   Ctrl+Enter starts. Fields and views are Gradio's; the id of an upload reaches them through a hidden field. */

const UPLOAD = "/studio/upload";

/** Writes into a Gradio text field as a person would. */
function type(id, text) {
  const input = document.querySelector(`#${id} textarea, #${id} input`);
  if (!input) return;
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

/** The answer's values; nothing where it is no JSON, as that of a fault that nobody foresaw. */
function read(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/** Sends one file; the line in the zone says how far it is, and the fault where there is one. */
function send(zone, file) {
  const bar = zone.querySelector("progress");
  const line = zone.querySelector(".drop-line");
  const request = new XMLHttpRequest();
  const end = (words) => {
    bar.hidden = true;
    line.textContent = words;
    zone.toggleAttribute("data-fault", Boolean(words));
  };
  request.open("PUT", UPLOAD);
  request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
  request.upload.onprogress = (event) => {
    if (event.lengthComputable) bar.value = event.loaded / event.total;
  };
  request.onerror = () => end(zone.dataset.failed);
  request.onload = () => {
    const answer = read(request.responseText);
    if (request.status === 200) {
      end("");
      type("data-upload", answer.id);
    } else end([answer.message, answer.hint].filter(Boolean).join(" ") || zone.dataset.failed);
  };
  bar.value = 0;
  bar.hidden = false;
  line.textContent = `${zone.dataset.busy} ${file.name}`;
  request.send(file);
}

document.addEventListener("change", (event) => {
  if (event.target.id !== "data-file" || !event.target.files.length) return;
  send(event.target.closest("[data-drop]"), event.target.files[0]);
  event.target.value = "";
});

/* A file dropped anywhere on the page is meant for the zone; the browser must not open it instead. */
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    const zone = document.querySelector("[data-drop]");
    if (!zone || ![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    zone.toggleAttribute("data-over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) send(zone, event.dataTransfer.files[0]);
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const start = document.getElementById("start");
  if (start && !start.disabled) start.click();
});

/* Gradio gives each choice of a radio group a name of its own; the arrow keys and screen readers want one. */
function oneName() {
  for (const group of document.querySelectorAll("fieldset.block[id]"))
    for (const choice of group.querySelectorAll('input[type="radio"]')) if (choice.name !== group.id) choice.name = group.id;
}

/* The outline stands until Gradio has drawn the same page with its fields. */
function takeOver() {
  const outline = document.querySelector("main[data-outline]");
  if (outline && document.querySelector("gradio-app #machine h1") && document.getElementById("start")) outline.remove();
}

new MutationObserver(() => {
  takeOver();
  oneName();
  const link = document.querySelector("a[data-goto]:not([data-gone])");
  if (!link) return;
  link.setAttribute("data-gone", "");
  location.assign(link.href);
}).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-goto"] });
