/* One turn of a conversation: the question, an answer a column, and in a blind test which one is better. */

import { copied, list, make, put, say, show } from "../../dom.js";

const FENCED = /^```[^\n`]*\n([\s\S]*?)(?:^```[ \t]*$|(?![\s\S]))/gm;

/** An answer as plain text, its blocks of code in their own letters. */
function write(place, said) {
  const text = said.trim();
  if (!text.includes("```")) return say(place, text);
  const parts = [];
  let from = 0;
  for (const block of text.matchAll(FENCED)) {
    parts.push(text.slice(from, block.index).trim(), make("pre", {}, make("code", {}, block[1].trimEnd())));
    from = block.index + block[0].length;
  }
  place.replaceChildren(...[...parts, text.slice(from).trim()].filter(Boolean));
}

export class TurnView {
  constructor(chat, turn) {
    Object.assign(this, { chat, turn, answers: new Map() });
    const { words } = chat.page;
    this.question = make("p", { class: "question" }, turn.question);
    this.edit = make("button", { type: "button", class: "push quiet", onclick: () => this.editing() }, words.edit);
    this.asked = make("div", { class: "asked" }, this.question, this.edit);
    this.box = make("div", { class: "answers" }, ...turn.order.map((key) => this.answer(key)), this.reference());
    this.judge = make("div", { class: "judge", role: "group", "aria-label": words.blind });
    this.root = make("article", { class: "turn", "aria-label": words.you },
      turn.context && chat.turns[0] !== turn ? make("p", { class: "turn-new" }, words.new) : null,
      this.asked, turn.row ? make("p", { class: "hint" }, turn.row.words) : null, this.box, this.judge);
    this.update();
  }

  answer(key) {
    const { chat } = this;
    const { words } = chat.page;
    const part = {
      title: make("h3"), text: make("div", { class: "answer-text" }), fault: make("p", { class: "answer-fault" }), marks: make("ul", { class: "marks" }),
      how: make("span", { class: "hint" }),
      copy: make("button", { type: "button", class: "push quiet", onclick: () => copied(part.copy, this.turn.answers[key].text, words) }, words.copy),
      retry: make("button", { type: "button", class: "push quiet", title: words["retry.what"], onclick: () => chat.retry(this.turn, key) }, words.retry),
    };
    part.foot = make("p", { class: "answer-foot" }, part.copy, part.retry, part.how);
    part.root = make("section", {}, part.title, part.text, part.fault, part.marks, part.foot);
    this.answers.set(key, part);
    return part.root;
  }

  /** What the row itself answers. */
  reference() {
    const { row } = this.turn;
    if (!row?.answer) return null;
    const text = make("div", { class: "answer-text" });
    write(text, row.answer);
    return make("section", { class: "answer answer-right" }, make("h3", {}, this.chat.page.words.right), text);
  }

  /** Whether it is hidden who answered. */
  get hidden() {
    return this.turn.blind && !this.turn.vote;
  }

  title(key) {
    const { turn } = this;
    const letter = this.chat.page.words["blind.letters"].split(",")[turn.order.indexOf(key)];
    if (!turn.blind) return turn.answers[key].title;
    return turn.vote ? `${letter} · ${turn.answers[key].title}` : letter;
  }

  update(only) {
    const { chat, turn } = this;
    const { words, busy } = chat.page;
    for (const [key, part] of this.answers) {
      if (only && key !== only) continue;
      const { text, done, fault, how, tone, marks = [] } = turn.answers[key];
      const stopped = turn.answers[key].stopped || (!busy && !done && !fault);
      const title = this.title(key);
      put(part.root, "class", `answer answer-${this.hidden ? "hidden" : tone}`);
      say(part.title, title);
      part.text.toggleAttribute("data-wait", !text);
      show(part.text, text || !fault);
      write(part.text, text || (fault ? "" : done ? words.nothing : stopped ? words.no_answer : words.waiting));
      say(part.fault, fault);
      show(part.fault, fault);
      list(part.marks, marks, () => make("li", {}, make("b"), make("span")), (item, mark) => {
        put(item, "class", mark.ok ? "good" : "bad");
        say(item.firstElementChild, `${mark.name}: ${mark.ok ? words.passes : words.fails}`);
        say(item.lastElementChild, mark.ok ? "" : mark.why);
      });
      show(part.marks, marks.length);
      const ended = done || stopped || fault;
      show(part.foot, ended);
      show(part.copy, text);
      put(part.copy, "aria-label", `${words.copy}: ${title}`);
      show(part.retry, chat.isLast(turn) && !busy && !turn.vote && chat.columns.of(key));
      put(part.retry, "aria-label", `${words.retry}: ${title}`);
      say(part.how, [stopped ? words.stopped : "", how].filter(Boolean).join(" · "));
    }
    show(this.edit, !busy && !this.editor);
    this.judged();
  }

  /** The buttons of a blind test, or what was chosen. */
  judged() {
    const { chat, turn } = this;
    const { words } = chat.page;
    const ready = turn.blind && turn.order.every((key) => turn.answers[key].text && turn.answers[key].done);
    show(this.judge, turn.vote || ready);
    if (this.drawn === `${turn.vote}${ready}`) return;
    this.drawn = `${turn.vote}${ready}`;
    if (turn.vote) {
      const title = turn.answers[turn.vote]?.title;
      this.judge.replaceChildren(make("p", {}, title ? words["blind.chose"].replace("{title}", title) : words["blind.chose.same"]));
    } else if (ready) {
      const letters = words["blind.letters"].split(",");
      const button = (text, vote) => make("button", { type: "button", class: "push", onclick: () => chat.vote(turn, vote) }, text);
      this.judge.replaceChildren(...turn.order.map((key, at) => button(words["blind.better"].replace("{letter}", letters[at]), key)), button(words["blind.same"], "same"));
    }
  }

  /** The question in a field; sent anew, the conversation goes on from here. */
  editing() {
    const { chat, turn } = this;
    const { words } = chat.page;
    const field = make("textarea", { rows: Math.min(8, turn.question.split("\n").length + 1), "aria-label": words.ask }, turn.question);
    const back = () => {
      this.editor.replaceWith(this.question);
      this.editor = null;
      this.update();
      this.edit.focus();
    };
    const send = () => { if (field.value.trim() && !chat.page.busy) chat.edited(turn, field.value.trim()); };
    this.editor = make("div", { class: "asked-editor" }, field, make("div", { class: "actions" },
      make("button", { type: "button", class: "push primary", onclick: send }, words["edit.send"]),
      make("button", { type: "button", class: "push", onclick: back }, words["edit.back"])));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") back();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this.question.replaceWith(this.editor);
    this.update();
    field.focus();
  }
}
