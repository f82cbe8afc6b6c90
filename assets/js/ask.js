/* Requests to the studio. A fault is an error whose message is one line for a person, with what to do; it is empty where
   there was no answer at all. */

/** GET or POST with JSON in and out. */
export async function ask(path, body, signal) {
  const reply = await send(path, body, signal);
  return reply.json();
}

/** POST whose answer is a stream of JSON lines; `each` gets one value at a time. */
export async function stream(path, body, each, signal) {
  const reply = await send(path, body, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop();
    lines.filter(Boolean).forEach((line) => each(JSON.parse(line)));
    if (done) return;
  }
}

/** PUT of a file as it is; JSON out. */
export async function give(path, file) {
  const headers = { Accept: "application/json", "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(file.name) };
  const reply = await reached(path, { method: "PUT", cache: "no-store", headers, body: file });
  return reply.json();
}

function send(path, body, signal) {
  const options = { cache: "no-store", signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return reached(path, options);
}

async function reached(path, options) {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("");
  }
  if (reply.ok) return reply;
  const fault = await reply.json().catch(() => ({}));
  throw new Error([fault.message ?? `HTTP ${reply.status}`, ...(fault.problems ?? []), fault.hint].filter(Boolean).join(" "));
}

/** Calls `work` every `pause()` milliseconds while the page is shown. The page's dot moves one step a call: a continuous
    animation would be drawn sixty times a second, on the card that trains. */
export function poll(root, work, pause) {
  let timer = 0;
  let busy = false;
  const again = () => {
    clearTimeout(timer);
    if (root.isConnected && !document.hidden) timer = setTimeout(turn, pause());
  };
  const turn = async () => {
    if (busy) return;
    busy = true;
    try {
      await work();
      root.classList.toggle("beat");
    } finally {
      busy = false;
      again();
    }
  };
  const wake = () => {
    if (!root.isConnected) document.removeEventListener("visibilitychange", wake);
    else if (!document.hidden) turn();
  };
  document.addEventListener("visibilitychange", wake);
  turn();
  return turn;
}
