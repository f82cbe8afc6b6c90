/* An export on its way to the hub: asked where to, sent, looked at until it is there. The token leaves its field with the
   request, and the field is empty then. */

import { ask } from "../../ask.js";
import { copied, make, put, say, show } from "../../dom.js";

const LOOK_MS = 1000;

export class Sending {
  constructor(page, name) {
    this.words = page.words.hub;
    this.address = `/studio/run/${encodeURIComponent(page.filled)}/export/${encodeURIComponent(name)}/publish`;
    this.to = make("input", { type: "text", required: true, maxlength: 200, placeholder: this.words.example, autocomplete: "off", spellcheck: "false" });
    this.token = make("input", { type: "password", maxlength: 200, autocomplete: "off" });
    this.tokenHint = make("span", { class: "hint" });
    this.hidden = make("input", { type: "checkbox", checked: true });
    this.push = make("button", { type: "submit", class: "push" }, this.words.send);
    this.bar = make("progress", { max: 1, "aria-label": this.words.progress, hidden: true });
    this.ending = make("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.attempt(() => ask(`${this.address}/stop`, {})) }, page.words.stop);
    this.page = make("code", { class: "path" });
    const copying = make("button", { type: "button", onclick: () => copied(copying, this.page.textContent, page.words) }, page.words.copy);
    this.there = make("p", { class: "job-path", role: "status", hidden: true }, make("span"), this.page, copying);
    this.fault = make("p", { class: "fault-line", role: "alert", hidden: true });
    this.root = make("details", { class: "run-more", hidden: true }, make("summary", {}, this.words.title), this.form());
    this.root.addEventListener("toggle", () => this.root.open && this.look());
  }

  form() {
    const form = make("form", { class: "sending" },
      make("div", { class: "options" },
        make("div", {}, make("label", {}, make("span", {}, this.words.to), this.to)),
        make("div", {}, make("label", {}, make("span", {}, this.words.token), this.token, this.tokenHint)),
        make("label", { class: "check" }, this.hidden, make("span", {}, make("b", {}, this.words.private), make("span", { class: "hint" }, this.words.private_use)))),
      make("div", { class: "actions" }, this.push, this.ending), this.bar, this.there, this.fault);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    return form;
  }

  send() {
    const token = this.token.value;
    this.token.value = "";
    return this.attempt(async () => {
      await ask(this.address, { to: this.to.value, private: this.hidden.checked, token });
      await this.look();
    });
  }

  /** Looks until it is there, stopped or failed. */
  look() {
    clearTimeout(this.timer);
    return this.attempt(async () => {
      const now = await ask(this.address);
      say(this.tokenHint, now.login ? this.words.login : this.words.token_use);
      this.token.required = !now.login;
      put(this.bar, "value", now.share);
      for (const part of [this.bar, this.ending]) show(part, now.going);
      this.push.disabled = now.going;
      show(this.there, now.page);
      say(this.there.firstElementChild, now.private ? this.words.there_private : this.words.there);
      say(this.page, now.page);
      if (now.fault) this.failed(`${now.fault.message} ${now.fault.hint}`.trim());
      if (now.going && this.root.isConnected) this.timer = setTimeout(() => this.look(), LOOK_MS);
    });
  }

  async attempt(work) {
    this.failed("");
    try {
      await work();
    } catch (error) {
      this.failed(error.message);
    }
  }

  failed(text) {
    say(this.fault, text);
    show(this.fault, text);
  }
}
