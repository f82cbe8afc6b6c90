/* The queue above the history: who has the card, who waits, in which order; moved by buttons or by dragging. */

import { icon, keyed, list, make, put, say, show, state, told } from "../../dom.js";

export class Queue {
  /** `page`: {words, get(name), send(path, body, done)}. */
  constructor(page) {
    Object.assign(this, { page, words: page.words.queue, items: new Map(), order: [], dragged: null });
  }

  take({ holders, waiting }) {
    const { page } = this;
    show(page.get("queue"), holders.length || waiting.length);
    const create = () => make("p", { class: "queue-holder" }, state(), make("a"), make("span", { class: "queue-when" }));
    list(page.get("holders"), holders.length ? holders : [null], create, (line, holder) => this.holder(line, holder));
    this.free = !holders.length;
    this.order = waiting.map((run) => run.id);
    const [box, held] = [page.get("waiting"), document.activeElement];
    keyed(box, this.items, waiting, ({ id }) => this.item(id), (item, run, index) => this.place(item, run, index));
    // An element that was moved within the page loses the keyboard: it gets it back.
    if (held !== document.activeElement && box.contains(held)) held.focus({ preventScroll: true });
  }

  /** Who holds a card, or null: that it is free. */
  holder(line, holder) {
    const { words } = this;
    const [on, who, until] = line.children;
    show(on, holder);
    say(who, holder ? holder.title : words.free);
    if (holder) told(on, holder.tone, holder.word || words.holder);
    if (holder?.id) put(who, "href", `/watch?run=${encodeURIComponent(holder.id)}`);
    else who.removeAttribute("href");
    const parts = holder ? [this.on(holder), holder.ends === "–" ? "" : words.ends.replace("{clock}", holder.ends)] : [];
    say(until, parts.filter(Boolean).join(", "));
  }

  /** The cards, where there are several. */
  on({ on }) {
    return on && this.words.on.replace("{cards}", on);
  }

  place(item, run, index) {
    const { words } = this;
    item.title_ = run.title;
    say(item.title, run.title);
    put(item.title, "href", `/watch?run=${encodeURIComponent(run.id)}`);
    const known = run.starts === "–" ? words.next : words.starts.replace("{clock}", run.starts);
    const when = this.free && index === 0 ? words.now : known;
    const parts = [this.on(run), when, run.ends === "–" ? "" : words.ends.replace("{clock}", run.ends)];
    say(item.when, parts.filter(Boolean).join(", "));
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
