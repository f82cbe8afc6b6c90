/* What a page of another site can try against a studio in the same browser. Answers with all that it got hold of. */
async ([root, run]) => {
  const seen = [];
  const read = [
    "/", "/watch", "/studio/runs", "/studio/points", `/studio/run/${run}/config`, "/gradio_api/app_id",
    "/gradio_api/heartbeat/abc", "/studio/assets/studio.js", "/theme.css", "/config", "/gradio_api/file=/etc/passwd",
  ];
  const write = [
    `/studio/run/${run}/delete`, `/studio/run/${run}/rerun`, "/studio/cache/clear", "/gradio_api/queue/join",
    "/studio/upload", "/studio/token", "/enter",
  ];
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const soon = (begin) => Promise.race([new Promise(begin), wait(800)]);

  const text = async (path, options) => {
    try {
      const answer = await fetch(root + path, options);
      const body = await answer.text();
      if (answer.type !== "opaque" || body) seen.push(`read ${path} ${answer.status} ${body.slice(0, 80)}`);
    } catch {
      /* refused, as it should be */
    }
  };
  const element = (tag, fields) => soon((done) => {
    const made = Object.assign(document.createElement(tag), fields);
    made.onload = () => {
      if (["IMG", "SCRIPT", "LINK"].includes(made.tagName)) seen.push(`load ${tag} ${JSON.stringify(fields)}`);
      done();
    };
    made.onerror = done;
    document.body.append(made);
  });
  const form = (path, enctype) => soon((done) => {
    const frame = Object.assign(document.createElement("iframe"), { name: `f${Math.random()}` });
    const fields = { method: "post", action: root + path, target: frame.name, enctype };
    const made = Object.assign(document.createElement("form"), fields);
    made.append(Object.assign(document.createElement("input"), { name: "a", value: "b" }));
    frame.onload = done;
    document.body.append(frame, made);
    made.submit();
  });
  const stream = (path) => soon((done) => {
    const events = new EventSource(root + path, { withCredentials: true });
    events.onopen = () => { seen.push(`stream ${path}`); events.close(); done(); };
    events.onerror = () => { events.close(); done(); };
  });
  const socket = (path) => soon((done) => {
    const made = new WebSocket(root.replace("http", "ws") + path);
    made.onopen = () => { seen.push(`socket ${path}`); done(); };
    made.onerror = done;
  });

  const all = [];
  for (const path of read) {
    for (const credentials of ["include", "omit"]) {
      for (const mode of ["cors", "no-cors"]) all.push(text(path, { credentials, mode }));
    }
    for (const tag of ["img", "script", "iframe", "embed"]) all.push(element(tag, { src: root + path }));
    all.push(element("object", { data: root + path }), element("link", { rel: "stylesheet", href: root + path }));
    all.push(stream(path), socket(path));
  }
  for (const path of write) {
    for (const credentials of ["include", "omit"]) {
      const json = { "content-type": "application/json" };
      all.push(text(path, { method: "POST", mode: "no-cors", credentials, body: "{}" }));
      all.push(text(path, { method: "POST", credentials, body: "{}", headers: json }));
      all.push(text(path, { method: "PUT", credentials, body: "{}" }));
    }
    for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]) {
      all.push(form(path, enctype));
    }
    navigator.sendBeacon(root + path, "{}");
  }
  await Promise.all(all);
  for (const frame of document.querySelectorAll("iframe")) {
    try {
      if (frame.contentDocument?.body?.innerText.includes("Luthier")) seen.push("frame");
    } catch {
      /* of another origin: out of reach */
    }
  }
  return seen;
};
