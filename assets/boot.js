/* Runs first, before Gradio. It interprets the few bodies that Gradio's HTML component compiles with `Function`
   (its template "${value}" and an empty one), so that the content policy needs no unsafe-eval. Any other body still goes to the browser, which refuses it. */

(() => {
  const Native = window.Function;
  const BODIES = new Map([
    ["return `${value}`;", (names, values) => String(values[names.indexOf("value")] ?? "")],
    ["return ``;", () => ""],
    ['return "${value}";', () => "${value}"],
    ['return "";', () => ""],
  ]);
  function Reading(...parts) {
    const names = parts.slice(0, -1).map(String);
    const read = BODIES.get(String(parts.at(-1)).trim());
    return read ? (...values) => read(names, values) : Native(...parts);
  }
  Reading.prototype = Native.prototype;
  Object.setPrototypeOf(Reading, Native);
  window.Function = Reading;
})();

/* Gradio's sign that a page is loading counts tenths of a second in every frame, and goes on once it is gone: an idle page
   would be drawn sixty times a second, on the card that trains. No sign of Gradio's shows its seconds here. */
(() => {
  const frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (call) => (/performance\.now\(\)\s*-.+\/\s*1e3/.test(call) ? 0 : frame(call));
})();

/* Gradio copies a component's properties at every word of an event, each text and number of them by a call of
   structuredClone, and its functions by a call that fails with a new error: half of what an edit in New run cost. What
   structuredClone gives for a text, a number or a function is known without it. */
(() => {
  const clone = window.structuredClone.bind(window);
  const refused = new DOMException("A function cannot be cloned.", "DataCloneError");
  window.structuredClone = (value, options) => {
    if (typeof value === "function") throw refused;
    return Object(value) === value || typeof value === "symbol" ? clone(value, options) : value;
  };
})();

/* Gradio gives every page the application's name; each page keeps the title that it came with. */
(() => {
  let own = "";
  document.addEventListener("DOMContentLoaded", () => {
    own = document.title;
    const common = own.split(" · ").at(-1);
    new MutationObserver(() => {
      if (document.title === common && own !== common) document.title = own;
    }).observe(document.head, { subtree: true, childList: true, characterData: true });
  });
})();
