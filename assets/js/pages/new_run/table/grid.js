/* The grid: of any number of rows only those in view are drawn. It is one stop of the Tab key; within it the arrow keys
   move, as in a spreadsheet. Text goes through textContent. */

import { make, put, puts, say, show } from "../../../dom.js";

const ROW = 28;
const TALLEST = 12_000_000; // browsers draw nothing higher than some 17 million pixels
const AROUND = 6;
const LEAST = 112; // a column's role can be read

export class Grid {
  /** `page` has `at(place)`, `wanted(first, last)`, `words`, `roleGiven(column, word)`, `reached(place)`, `digits()` of the largest row number. */
  constructor(root, page) {
    Object.assign(this, { root, page, columns: [], count: 0, drawn: new Map(), free: [], at: { place: 0, column: 1 }, anchor: 0, picked: [] });
    this.head = make("div", { class: "rows-head" }); // a row once it has columns
    this.body = make("div", { role: "rowgroup", class: "rows-body" });
    root.append(make("div", { role: "rowgroup", class: "rows-top" }, this.head), this.body);
    root.addEventListener("scroll", () => this.draw());
    root.addEventListener("mousedown", (event) => this.pointed(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  /* ── columns ── */

  /** Draws the header; `roles` are columns with their words. */
  headed(columns, samples, roles) {
    const kept = document.activeElement?.closest?.('[role="columnheader"]')?.dataset.at;
    this.columns = columns;
    // What is left out has less room once it is known what is not.
    const most = (column) => Object.keys(roles).length && !roles[column] ? 112 : 224;
    const wide = columns.map((column) => Math.max(LEAST, Math.min(most(column), 20 + 7.2 * Math.max(column.length + 4, ...samples.map((row) => Math.min(44, row.cells[column]?.length ?? 0))))));
    const least = wide.reduce((sum, width) => sum + width, 0);
    const [rows, tokens] = [Math.round(38 + 8.6 * this.page.digits()), 74];
    // What is a little too wide is cut in its cells, not at the last column.
    const room = this.root.clientWidth - rows - tokens;
    const [bare, near] = [LEAST * columns.length, room < least && room > 0.7 * least];
    const fit = near ? Math.max(0, (room - bare) / (least - bare || 1)) : 1;
    const parts = wide.map((width) => `minmax(${Math.floor(LEAST + (width - LEAST) * fit)}px, ${(width / least).toFixed(3)}fr)`);
    this.root.style.setProperty("--columns", `${rows}px ${parts.join(" ")} ${tokens}px`);
    this.head.replaceChildren(
      this.header(0, make("span", { class: "name" }, this.page.words.number)),
      ...columns.map((column, index) => this.header(index + 1, make("span", { class: "name", title: column }, column), this.choice(column, roles))),
      this.header(columns.length + 1, make("span", { class: "name" }, this.page.words.tokens)),
    );
    put(this.head, "role", "row");
    put(this.head, "aria-rowindex", 1);
    put(this.root, "aria-colcount", columns.length + 2);
    this.at.column = Math.min(this.at.column, columns.length + 1);
    if (kept) this.head.children[kept]?.focus({ preventScroll: true });
  }

  header(index, ...parts) {
    return make("div", { role: "columnheader", "aria-colindex": index + 1, "data-at": index, tabindex: -1 }, ...parts);
  }

  /** What a column is. A role that other columns have, too, is joined of them in their order, which its name says. */
  choice(column, roles) {
    const { words } = this.page;
    const word = roles[column] ?? "";
    const named = (value, name) => {
      const having = words.joining.includes(value) ? this.columns.filter((one) => roles[one] === value) : [];
      const at = having.indexOf(column) + 1;
      if (!having.length || (at && having.length === 1)) return name;
      return (at ? words.joined : words.also).replace("{role}", name).replace("{at}", at).replace("{count}", having.length);
    };
    const label = words.role_of.replace("{column}", column);
    const options = words.roles.map(([value, name]) => make("option", { value, selected: value === word }, named(value, name)));
    const select = make("select", { "aria-label": label, tabindex: -1, "data-role": word, onchange: () => this.page.roleGiven(column, select.value) }, ...options);
    return select;
  }

  /* ── rows ── */

  /** How many rows there are now. */
  sized(count) {
    this.count = count;
    this.body.style.height = `${this.tall()}px`;
    put(this.root, "aria-rowcount", count + 1);
    if (this.at.place >= count) this.at.place = Math.max(-1, count - 1);
    this.draw();
  }

  tall() {
    return Math.min(this.count * ROW, TALLEST);
  }

  room() {
    return Math.max(ROW, this.root.clientHeight - this.head.offsetHeight);
  }

  /** Pixels of the rows for one of the scroll bar: 1, unless there are more rows than a page can be high. */
  scale() {
    const room = this.room();
    return this.count * ROW <= TALLEST ? 1 : (this.count * ROW - room) / (TALLEST - room);
  }

  draw() {
    const top = this.root.scrollTop;
    const above = top * this.scale();
    const first = Math.max(0, Math.floor(above / ROW) - AROUND);
    const last = Math.min(this.count - 1, Math.ceil((above + this.room()) / ROW) + AROUND);
    const own = this.at.place;
    for (const [place, row] of this.drawn)
      if ((place < first || place > last) && place !== own) {
        this.drawn.delete(place);
        this.free.push(row);
      }
    for (let place = first; place <= last; place += 1) this.placed(place, top - above);
    if (own >= 0 && own < this.count && (own < first || own > last)) this.placed(own, top - above);
    for (const row of this.free.splice(0)) row.remove();
    if (last >= first) this.page.wanted(first, last);
    this.stops();
  }

  placed(place, shift) {
    let row = this.drawn.get(place);
    if (!row) {
      row = this.free.pop() ?? make("div", { role: "row", class: "rows-row" });
      this.drawn.set(place, row);
      if (!row.isConnected) this.body.append(row);
      put(row, "aria-rowindex", place + 2);
      row.dataset.place = place;
      this.filled(row, place);
    }
    row.style.transform = `translateY(${Math.max(-2 * ROW, Math.min(place * ROW + shift, this.tall() + ROW))}px)`;
  }

  filled(row, place) {
    const found = this.page.at(place);
    const { words } = this.page;
    const cells = this.columns.length + 2;
    while (row.children.length > cells) row.lastElementChild.remove();
    while (row.children.length < cells) row.append(make("div", { role: row.children.length ? "gridcell" : "rowheader", "aria-colindex": row.children.length + 1, "data-at": row.children.length, tabindex: -1 }));
    row.classList.toggle("away", !found);
    row.classList.toggle("excluded", Boolean(found?.excluded));
    row.classList.toggle("flawed", Boolean(found?.problem));
    put(row, "aria-selected", this.isPicked(place));
    numbered(row.firstElementChild, found, this.page);
    const edited = new Set(found?.edited ?? []);
    this.columns.forEach((column, index) => {
      const cell = row.children[index + 1];
      const text = found?.cells?.[column] ?? "";
      say(cell, found?.cut?.includes(column) ? `${text}…` : text);
      cell.classList.toggle("edited", edited.has(column));
      if (edited.has(column)) put(cell, "aria-description", words.edited);
      else cell.removeAttribute("aria-description");
    });
    say(row.lastElementChild, found?.tokens?.toLocaleString("en") ?? "");
  }

  /** Every row that is drawn, once more. */
  again() {
    for (const [place, row] of this.drawn) this.filled(row, place);
  }

  /* ── where the keyboard is ── */

  cell(place = this.at.place, column = this.at.column) {
    return (place < 0 ? this.head : this.drawn.get(place))?.children[column] ?? null;
  }

  stops() {
    const now = this.cell();
    if (now !== this.stop) {
      if (this.stop) this.stop.tabIndex = -1;
      this.stop?.classList.remove("here");
    }
    this.stop = now;
    if (!now) return;
    now.tabIndex = 0;
    now.classList.add("here");
  }

  /** Goes to a cell; `extend` takes the rows between along. */
  go(place, column, extend = false) {
    const to = Math.max(-1, Math.min(this.count - 1, place));
    this.at = { place: to, column: Math.max(0, Math.min(this.columns.length + 1, column)) };
    if (extend && to >= 0) this.picked = [[Math.min(this.anchor, to), Math.max(this.anchor, to)]];
    else this.anchor = Math.max(0, to);
    this.reveal();
    this.draw();
    if (extend) this.marked();
    this.cell()?.focus({ preventScroll: true });
    this.page.reached(to);
  }

  /** Scrolls so far that the cell is in view. */
  reveal() {
    const { place, column } = this.at;
    const [scale, room] = [this.scale(), this.room()];
    if (place >= 0) {
      const above = this.root.scrollTop * scale;
      if (place * ROW < above) this.root.scrollTop = (place * ROW) / scale;
      else if ((place + 1) * ROW > above + room) this.root.scrollTop = ((place + 1) * ROW - room) / scale;
    }
    const cell = this.head.children[column];
    if (!cell || !column) return;
    const pinned = this.head.firstElementChild.offsetWidth;
    if (cell.offsetLeft - pinned < this.root.scrollLeft) this.root.scrollLeft = cell.offsetLeft - pinned;
    else if (cell.offsetLeft + cell.offsetWidth > this.root.scrollLeft + this.root.clientWidth)
      this.root.scrollLeft = Math.min(cell.offsetLeft - pinned, cell.offsetLeft + cell.offsetWidth - this.root.clientWidth);
  }

  pointed(event) {
    const cell = event.target.closest('[role="gridcell"], [role="rowheader"]');
    if (!cell || event.button) return;
    event.preventDefault();
    const place = Number(cell.parentElement.dataset.place);
    if (event.ctrlKey || event.metaKey) this.pick(place);
    else if (!event.shiftKey) this.unpick();
    this.go(place, Number(cell.dataset.at), event.shiftKey);
  }

  /** A key within the grid; whether it was one of ours. */
  key(event) {
    const { place, column } = this.at;
    const page = Math.max(1, Math.floor(this.room() / ROW) - 1);
    const far = event.ctrlKey || event.metaKey;
    const to = {
      ArrowDown: [far ? this.count - 1 : place + 1, column], ArrowUp: [far ? 0 : place - 1, column],
      ArrowRight: [place, column + 1], ArrowLeft: [place, column - 1],
      PageDown: [place + page, column], PageUp: [Math.max(0, place - page), column],
      Home: far ? [0, 0] : [place, 0], End: far ? [this.count - 1, this.columns.length + 1] : [place, this.columns.length + 1],
    }[event.key];
    if (to) this.go(...to, event.shiftKey);
    else if (event.key === " " && place >= 0) this.pick(place);
    else if (event.key === "a" && far) this.pickAll();
    else if (event.key === "Escape" && this.picked.length) this.unpick();
    else return false;
    return true;
  }

  /* ── selected rows ── */

  isPicked(place) {
    return this.picked.some(([first, last]) => place >= first && place <= last);
  }

  pick(place) {
    this.picked = this.isPicked(place)
      ? this.picked.flatMap(([first, last]) => (place < first || place > last ? [[first, last]] : [[first, place - 1], [place + 1, last]])).filter(([first, last]) => first <= last)
      : [...this.picked, [place, place]];
    this.marked();
  }

  pickAll() {
    this.picked = this.count ? [[0, this.count - 1]] : [];
    this.marked();
  }

  unpick() {
    if (!this.picked.length) return;
    this.picked = [];
    this.marked();
  }

  marked() {
    for (const [place, row] of this.drawn) put(row, "aria-selected", this.isPicked(place));
    this.page.picked(this.picked.reduce((sum, [first, last]) => sum + last - first + 1, 0));
  }
}

/** A row's number, and its marks: what is wrong with it, what the data doctor found. */
function numbered(cell, found, page) {
  if (!cell.children.length) cell.append(make("span", { class: "rows-number" }), make("span", { class: "mark", "aria-hidden": "true" }));
  say(cell.firstElementChild, found ? found.row.toLocaleString("en") : "…");
  const why = found ? page.why(found) : "";
  const mark = cell.lastElementChild;
  show(mark, why);
  say(mark, why ? (found.excluded ? "–" : found.problem ? "!" : "•") : "");
  if (why) puts(cell, { title: why, "aria-description": why });
  else for (const name of ["title", "aria-description"]) cell.removeAttribute(name);
}
