/* Rows by their places, in blocks that are fetched as they come into view. Of a million only some blocks are kept. */

const BLOCK = 100;
const KEPT = 40;
const AT_ONCE = 3;

export class Store {
  /** `fetched(first, count)` gives a window of rows; `arrived(window)` and `failed(error)` hear of the outcome. */
  constructor(fetched, arrived, failed) {
    Object.assign(this, { fetched, arrived, failed, version: 0, blocks: new Map(), asked: new Set(), wanted: [] });
  }

  /** Forgets all: another file, or other rows of it. */
  clear() {
    this.version += 1;
    this.blocks.clear();
    this.asked.clear();
    this.wanted = [];
  }

  /** Asks again for what is shown, which stands until the answer comes. */
  stale() {
    this.version += 1;
    this.asked.clear();
    this.wanted = [];
    for (const block of this.blocks.values()) block.stale = true;
  }

  at(place) {
    return this.blocks.get(Math.floor(place / BLOCK))?.rows[place % BLOCK];
  }

  /** Sees to it that these places are fetched; those that were wanted before and are out of view wait no longer. */
  want(first, last) {
    const numbers = [];
    for (let number = Math.floor(first / BLOCK); number <= Math.floor(last / BLOCK); number += 1) numbers.push(number);
    this.wanted = numbers.filter((number) => !this.asked.has(number) && this.blocks.get(number)?.stale !== false);
    this.next();
  }

  next() {
    while (this.asked.size < AT_ONCE && this.wanted.length) this.ask(this.wanted.shift());
  }

  async ask(number) {
    const { version } = this;
    this.asked.add(number);
    try {
      const found = await this.fetched(number * BLOCK, BLOCK);
      if (version !== this.version) return;
      this.keep(number, found.rows ?? []);
      this.arrived(found);
    } catch (error) {
      if (version === this.version) this.failed(error);
    } finally {
      if (version === this.version) {
        this.asked.delete(number);
        this.next();
      }
    }
  }

  keep(number, rows) {
    this.blocks.delete(number);
    this.blocks.set(number, { rows, stale: false });
    if (this.blocks.size > KEPT) this.blocks.delete(this.blocks.keys().next().value);
  }

  /** The numbers of the rows at these places, which need not be in view. */
  async numbers(first, last) {
    const found = [];
    for (let place = first; place <= last; ) {
      const row = this.at(place);
      if (row) {
        found.push(row.row);
        place += 1;
        continue;
      }
      const { rows = [] } = await this.fetched(place, Math.min(500, last - place + 1));
      if (!rows.length) break;
      found.push(...rows.map((one) => one.row));
      place += rows.length;
    }
    return found;
  }
}
