/* The history page: the runs that match the filter. With ?compare=A,B it shows these runs beside each other
   (compare.js). */

import { ask } from "../ask.js";
import { keyed, put, say, show } from "../dom.js";
import { Page, choose } from "../page.js";
import { Compare } from "./history/compare.js";
import { Queue } from "./history/queue.js";
import { Row } from "./history/run_row.js";

const PAGE = 50;
const MOST = 5;
const FILTER = { words: "search", state: "filter", model: "model", method: "method", when: "span" };

export function page(root, words) {
  const compared = new URLSearchParams(location.search).get("compare");
  return compared ? new Compare(root, words, compared) : new History(root, words);
}

class History extends Page {
  constructor(root, words) {
    super(root, words);
    Object.assign(this, { runs: [], tag: "", rows: new Map(), limit: PAGE, picked: new Set(), typing: 0 });
    this.queue = new Queue(this);
    for (const name of Object.values(FILTER)) this.get(name).addEventListener("input", () => this.sought());
    this.get("reset").addEventListener("click", () => this.reset());
    this.get("more").addEventListener("click", () => this.further());
    this.get("unpick").addEventListener("click", () => { this.picked.clear(); this.choice(); this.get("search").focus(); });
    this.look(() => this.tick(), () => 3000);
  }

  /** The filter as the request's parameters. */
  asked() {
    const wanted = new URLSearchParams({ limit: this.limit });
    for (const [key, name] of Object.entries(FILTER)) if (this.get(name).value.trim()) wanted.set(key, this.get(name).value.trim());
    return wanted;
  }

  async tick() {
    const asked = this.asked();
    try {
      const answer = await ask(`/studio/history?${asked}&tag=${this.tag}`);
      if (!answer.same && `${asked}` === `${this.asked()}`) this.take(answer);
    } finally {
      if (`${asked}` !== `${this.asked()}`) setTimeout(() => this.turn());
    }
  }

  /** The filter changed: asks once typing pauses. */
  sought() {
    this.limit = PAGE;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.turn(), 120);
  }

  reset() {
    for (const name of Object.values(FILTER)) this.get(name).value = "";
    this.sought();
    this.get("search").focus();
  }

  async further() {
    const last = this.runs.length;
    this.limit += PAGE;
    await this.turn();
    this.rows.get(this.runs[last]?.id)?.title.focus();
  }

  take(answer) {
    Object.assign(this, { tag: answer.tag, runs: answer.runs, count: answer.count, all: answer.all });
    this.offer("model", answer.models, (name) => name);
    this.offer("method", answer.methods, (name) => this.words[`method.${name}`] ?? name);
    this.queue.take(answer.queue);
    say(this.get("disk"), answer.disk);
    show(this.get("disk"), answer.disk);
    this.fill();
    const { holder } = answer.queue;
    document.title = holder?.id ? this.words.tab.replace("{words}", holder.word) : (this.title ??= document.title);
  }

  /** Fills a choice; what is chosen stays. */
  offer(name, values, written) {
    const select = this.get(name);
    const known = [...select.options].slice(1).map((option) => option.value);
    if (`${known}` === `${values}`) return;
    const chosen = select.value;
    while (select.options.length > 1) select.lastElementChild.remove();
    for (const value of values) select.append(new Option(written(value), value));
    select.value = values.includes(chosen) ? chosen : "";
    show(select.closest("label"), values.length > 1);
  }

  /** One row a run, kept by its id. */
  fill() {
    keyed(this.get("runs"), this.rows, this.runs, (run) => new Row(this, run.id), (row, run) => row.update(run));
    show(this.get("none"), !this.all);
    show(this.get("some"), this.all);
    show(this.get("nothing"), this.all && !this.count);
    const rest = this.count - this.runs.length;
    show(this.get("more"), rest > 0);
    say(this.get("more"), this.words.more.replace("{count}", Math.min(rest, PAGE)));
    say(this.get("count"), this.words.count.replace("{count}", this.count.toLocaleString("en")).replace("{all}", this.all.toLocaleString("en")));
    this.choice();
  }

  /** The choice for the comparison: two to five. */
  choice() {
    const { picked, words } = this;
    for (const row of this.rows.values()) row.picked(picked.has(row.id), picked.size >= MOST);
    show(this.get("picked"), picked.size);
    say(this.get("picked-count"), picked.size ? words.picked.replace("{count}", picked.size) : "");
    const link = this.get("compare-link");
    show(link, picked.size > 1);
    say(link, words.compare.replace("{count}", picked.size));
    put(link, "href", `/history?compare=${[...picked].join(",")}`);
  }

  pick(id, on) {
    if (on) this.picked.add(id);
    else this.picked.delete(id);
    this.choice();
  }

  /** Sends a command for a run and announces the outcome. */
  async command(run, verb, body = {}) {
    if (verb === "delete") {
      say(this.get("delete-name"), run.title);
      say(this.get("delete-size"), run.size);
      if ((await choose(this.get("delete-dialog"))) !== "delete") return false;
    }
    return this.send(`/studio/run/${encodeURIComponent(run.id)}/${verb}`, body, this.words[`done.${verb}`] ?? "");
  }

  send(path, body, done) {
    return this.attempt(async () => {
      const answer = await ask(path, body);
      if (answer.go) location.assign(answer.go);
      else await this.turn();
      say(this.get("said"), done);
    });
  }
}
