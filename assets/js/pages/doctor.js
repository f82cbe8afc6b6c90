/* The doctor page: throws the tokenised rows away, and says how much room that made. */

import { ask } from "../ask.js";
import { field, say, show } from "../dom.js";

export function page(root, words) {
  const button = field(root, "clear");
  button?.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const { said } = await ask("/studio/cache/clear", {});
      say(field(root, "said"), said);
      show(field(root, "kept"), false);
      show(field(root, "foot"), false);
    } catch (fault) {
      say(field(root, "said"), fault.message || words.away);
      button.disabled = false;
    }
  });
}
