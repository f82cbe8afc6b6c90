/* The queue above the history: who has the card, who waits, in which order; moved by buttons or by dragging. */

import { icon, keyed, make, put, say, show, state, told } from "../../dom.js";

export class Queue {
  /** `page`: {words, get(name), send(path, body, done)}. */
  constructor(page) {
    Object.assign(this, { page, words: page.words.queue, items: new Map(), order: [], dragged: null });
  }

  take({ holder, waiting }) {
    const { page, words } = this;
    show(page.get("queue"), holder || waiting.length);
    this.holder(holder, words);
    this.free = !holder;
    this.order = waiting.map((run) => run.id);
    const [box, held] = [page.get("waiting"), document.activeElement];
    keyed(box, this.items, waiting, ({ id }) => this.item(id), (item, run, index) => this.place(item, run, index));
    // An element that was moved within the page loses the keyboard: it gets it back.
    if (held !== document.activeElement && box.contains(held)) held.focus({ preventScroll: true });
  }

  holder(holder, words) {
    const box = this.page.get("holder");
    if (!this.on) box.append((this.on = state()), (this.who = make("a")), (this.until = make("span", { class: "queue-when" })));
    show(this.on, holder);
    show(this.until, holder && holder.ends !== "–");
    say(this.who, holder ? holder.title : words.free);
    if (!holder) return this.who.removeAttribute("href");
    told(this.on, holder.tone, holder.word || words.holder);
    if (holder.id) put(this.who, "href", `/watch?run=${encodeURIComponent(holder.id)}`);
    else this.who.removeAttribute("href");
    say(this.until, words.ends.replace("{clock}", holder.ends));
  }

  place(item, run, index) {
    const { words } = this;
    item.title_ = run.title;
    say(item.title, run.title);
    put(item.title, "href", `/watch?run=${encodeURIComponent(run.id)}`);
    const known = run.starts === "–" ? words.next : words.starts.replace("{clock}", run.starts);
    const when = this.free && index === 0 ? words.now : known;
    say(item.when, run.ends === "–" ? when : `${when}, ${words.ends.replace("{clock}", run.ends)}`);
    for (const verb of ["up", "down", "remove"]) put(item[verb], "aria-label", `${words[verb]}: ${run.title}`);
    // aria-disabled and not disabled: a button that had the keyboard keeps it at the end of its way
    put(item.up, "aria-disabled", index === 0);
    put(item.down, "aria-disabled", index === this.order.length - 1);
  }

  item(id) {
    const { words } = this;
    const button = (verb, icon, work) => make("button", { type: "button", class: "quiet", onclick: work, title: words[verb] }, icon);
    const item = { title: make("a"), when: make("span", { class: "queue-when" }) };
    item.up = button("up", icon("up"), () => this.move(id, -1));
    item.down = button("down", icon("down"), () => this.move(id, 1));
    item.remove = button("remove", words.remove, () => this.remove(id));
    item.root = make("li", { draggable: "true" }, make("div", { class: "queue-what" }, item.title, item.when), make("div", { class: "run-buttons" }, item.up, item.down, item.remove));
    this.drags(item.root, id);
    return item;
  }

  drags(root, id) {
    root.addEventListener("dragstart", (event) => { this.dragged = id; event.dataTransfer.effectAllowed = "move"; event.dataTransfer.setData("text/plain", id); });
    root.addEventListener("dragend", () => { this.dragged = null; });
    root.addEventListener("dragover", (event) => { if (this.dragged && this.dragged !== id) { event.preventDefault(); put(root, "data-over", ""); } });
    root.addEventListener("dragleave", () => root.removeAttribute("data-over"));
    root.addEventListener("drop", (event) => {
      event.preventDefault();
      root.removeAttribute("data-over");
      if (this.dragged) this.moveTo(this.dragged, this.order.indexOf(id));
    });
  }

  move(id, by) {
    const place = this.order.indexOf(id) + by;
    if (place >= 0 && place < this.order.length) this.moveTo(id, place);
  }

  moveTo(id, place) {
    const done = this.words.moved.replace("{title}", this.items.get(id).title_).replace("{place}", place + 1);
    return this.page.send(`/studio/queue/${encodeURIComponent(id)}/move`, { place }, done);
  }

  remove(id) {
    const done = this.words.removed.replace("{title}", this.items.get(id).title_);
    return this.page.send(`/studio/run/${encodeURIComponent(id)}/stop`, {}, done);
  }
}
