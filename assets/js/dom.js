/* Helpers for the DOM. Text always goes through textContent: a run's name is never markup. Nothing is written that stands
   there already. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children (strings become text). `on…` attributes take listeners. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element, likewise. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A picture made in Python: [element, attributes, children...] (`studio/figures/curves.py`). */
export function drawn([tag, attributes, ...children]) {
  return draw(tag, attributes, ...children.map((child) => (typeof child === "string" ? child : drawn(child))));
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** One of assets/icons.svg. */
export function icon(name) {
  return draw("svg", { class: "icon", "aria-hidden": "true" }, draw("use", { href: new URL(`../icons.svg#${name}`, import.meta.url).href }));
}

/** Sets an attribute only when it changes. */
export function put(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Sets several of them. */
export function puts(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) put(element, name, value);
}

/** Sets the text only when it changes. */
export function say(element, text) {
  const words = text === null || text === undefined ? "" : String(text);
  if (element && element.textContent !== words) element.textContent = words;
}

/** Shows or hides by the `hidden` attribute. */
export function show(element, visible) {
  if (element && element.hidden === Boolean(visible)) element.hidden = !visible;
}

/** Matches a container's children to `items`: reused in order, made or removed at the end only. */
export function list(container, items, create, update) {
  while (container.children.length > items.length) container.lastElementChild.remove();
  while (container.children.length < items.length) container.append(create());
  items.forEach((item, index) => update(container.children[index], item, index));
}

/** The same by `id`, for items that move: `kept` maps it to what `create(item)` made, whose `root` stands in the container. */
export function keyed(container, kept, items, create, update = () => {}) {
  const wanted = new Set(items.map((item) => item.id));
  for (const [id, row] of kept) if (!wanted.has(id)) { row.root.remove(); kept.delete(id); }
  items.forEach((item, index) => {
    if (!kept.has(item.id)) kept.set(item.id, create(item));
    const row = kept.get(item.id);
    if (container.children[index] !== row.root) container.insertBefore(row.root, container.children[index] ?? null);
    update(row, item, index);
  });
}

/** A state: a dot in its tone and its word. */
export function state() {
  return make("span", { class: "state" }, make("span", { class: "dot", "aria-hidden": "true" }), make("b"));
}

/** Brings a state up to date. */
export function told(element, tone, word) {
  put(element, "class", `state tone-${tone}`);
  say(element.lastElementChild, word);
}

/** The element of a page that carries `data-f="name"`. */
export function field(root, name) {
  return root.querySelector(`[data-f="${name}"]`);
}

/** Writes every string of `words` into the field of its name. */
export function fields(root, words) {
  for (const [name, text] of Object.entries(words)) say(field(root, name), text);
}

/** Fills the verdict of `studio/shell/slots.py`; without one it takes no place. */
export function verdict(root, became) {
  put(field(root, "verdict"), "class", became ? `verdict tone-${became.tone}` : "verdict");
  show(field(root, "verdict-actions"), became);
  for (const part of ["text", "do", "used"]) {
    say(field(root, `verdict-${part}`), became?.[part]);
    show(field(root, `verdict-${part}`), became?.[part]);
  }
}

/** Copies text; false where the browser forbids it. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Copies text for a button, which says for a moment whether that was done. */
export async function copied(button, text, words) {
  const done = await copy(text);
  say(button, done ? words.copied : words.not_copied);
  setTimeout(() => say(button, words.copy), 1600);
}

/** A word of a command line, quoted where a shell could read it as more than one plain word. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
