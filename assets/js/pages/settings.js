/* The settings page: sends what is changed, says what came of it, and measures the folders once the page stands. */

import { ask } from "../ask.js";
import { copied, field, put, say, show } from "../dom.js";

export function page(root, words) {
  const get = (name) => field(root, name);

  /** Does `work`, whose answer is said in a card's line, as is what hindered it. */
  const told = async (card, work) => {
    try {
      const answer = await work();
      say(get(`said-${card}`), answer.said);
      return answer;
    } catch (fault) {
      say(get(`said-${card}`), fault.message || words.away);
      return null;
    }
  };

  const login = (now) => {
    if (!now) return;
    put(get("state"), "class", `state tone-${now.tone}`);
    say(get("state-words"), now.state);
    say(get("where"), now.where);
    show(get("where"), now.where);
    show(get("token-form"), now.entered);
    show(get("remove-token"), now.kept);
  };
  get("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [input, button] = [get("token"), get("save-token")];
    button.disabled = true;
    say(button, words.saving);
    const now = await told("hub", () => ask("/studio/settings/token", { token: input.value }));
    if (now) input.value = "";
    button.disabled = false;
    say(button, words.save);
    login(now);
    (now ? button : input).focus();
  });
  get("remove-token").addEventListener("click", async () => {
    login(await told("hub", () => ask("/studio/settings/token/remove", {})));
    if (get("remove-token").hidden) get("token").focus();
  });

  get("notify").addEventListener("change", async () => {
    const box = get("notify");
    if (!(await told("tell", () => ask("/studio/settings", { notify: box.checked })))) box.checked = !box.checked;
  });
  get("power-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = { kwh_price: get("price").valueAsNumber || 0, currency: get("currency").value.trim() };
    told("power", () => ask("/studio/settings", chosen));
  });

  const measure = () => told("folders-size", () => ask("/studio/settings/sizes")).then((sizes) => {
    for (const cell of root.querySelectorAll("[data-size]")) say(cell, sizes?.[cell.dataset.size] ?? "–");
  });
  for (const button of root.querySelectorAll("[data-copy]")) {
    const label = button.getAttribute("aria-label");
    button.addEventListener("click", async () => {
      button.removeAttribute("aria-label"); // what it says now is heard
      await copied(button, button.dataset.copy, words);
      setTimeout(() => put(button, "aria-label", label), 1600);
    });
  }
  for (const button of root.querySelectorAll("[data-clear]")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      const done = await told("folders", () => ask(`/studio/settings/clear/${button.dataset.clear}`, {}));
      if (done && button.dataset.clear === "tokens") get("kept")?.remove();
      button.disabled = false;
      button.focus();
      measure();
    });
  }
  measure();
}
