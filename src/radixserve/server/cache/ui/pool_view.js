// The pool as a grid of slots, each in the colour of its owner. When there are more slots than room, a cell stands for several.

const SMALLEST = 5;
const LARGEST = 52;
const MOST_HEIGHT = 240;

export class PoolView {
  /** `on.hover(owner, slot)`: a node's id, minus a request's place, 0 for free, or null when the pointer is gone. */
  constructor(place, state, colours, on) {
    this.place = place;
    this.state = state;
    this.colours = colours;
    this.canvas = place.querySelector("canvas");
    this.lit = new Set();
    this.owners = new Int32Array(0);
    this.canvas.addEventListener("pointermove", (event) => {
      const slot = this.#slotAt(event);
      if (slot === null) on.hover(null);
      else on.hover(this.owners[slot], slot, this.perCell);
    });
    this.canvas.addEventListener("pointerleave", () => on.hover(null));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  draw() {
    this.owners = this.state.owners();
    const { numSlots } = this.state;
    const width = this.place.clientWidth;
    if (!width || !numSlots) return;
    this.#measure(width, numSlots);
    const ratio = devicePixelRatio;
    const height = Math.ceil(this.cells / this.columns) * this.cell;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    for (let cell = 0; cell < this.cells; cell += 1) this.#cell(context, cell);
  }

  /** Marks the slots of these owners. */
  light(owners) {
    this.lit = new Set(owners);
    this.draw();
  }

  /** Chooses the largest cells that let all slots in, or else how many slots a cell stands for. */
  #measure(width, numSlots) {
    this.perCell = 1;
    const columns = (cell) => Math.max(Math.floor(width / cell), 1);
    const fits = (cell) => Math.ceil(numSlots / this.perCell / columns(cell)) * cell <= MOST_HEIGHT;
    let cell = Math.min(LARGEST, Math.max(width / (numSlots <= 12 ? 6 : 16), 9));
    while (cell > SMALLEST && !fits(cell)) cell -= 1;
    while (!fits(cell)) this.perCell *= 2;
    this.columns = columns(cell);
    this.cell = width / this.columns > LARGEST ? LARGEST : width / this.columns;
    this.cells = Math.ceil(numSlots / this.perCell);
  }

  #cell(context, cell) {
    const first = this.state.pageSize + cell * this.perCell;
    const end = Math.min(first + this.perCell, this.owners.length);
    let held = 0;
    let owner = 0;
    let lit = false;
    for (let slot = first; slot < end; slot += 1) {
      if (!this.owners[slot]) continue;
      held += 1;
      owner ||= this.owners[slot];
      lit ||= this.lit.has(this.owners[slot]);
    }
    const { theme } = this.colours;
    const gap = this.cell > 40 ? 4 : this.cell > 12 ? 2 : this.cell > 7 ? 1.5 : 1;
    const x = (cell % this.columns) * this.cell;
    const y = Math.floor(cell / this.columns) * this.cell;
    const size = this.cell - gap;
    const node = owner > 0 ? this.state.nodes.get(owner) : null;
    const colour = owner < 0 ? theme.request : node ? this.colours.of(node) : theme.free;
    const large = this.cell >= 18;
    context.beginPath();
    context.roundRect(x + gap / 2, y + gap / 2, size, size, Math.min(size / 4, 6));
    context.fillStyle = owner ? (large ? this.colours.ground(colour, 0.35) : this.colours.ground(colour, 0.35 + 0.65 * (held / (end - first)))) : theme.free;
    context.fill();
    if (large && owner) {
      context.lineWidth = 1.25;
      context.strokeStyle = colour;
      context.stroke();
    }
    if (node?.locks && !lit) {
      context.lineWidth = large ? 2 : 1;
      context.strokeStyle = theme.lock;
      context.stroke();
    }
    if (lit) {
      context.lineWidth = large ? 2.5 : 1.5;
      context.strokeStyle = theme.ink;
      context.stroke();
    }
    if (large && this.perCell === 1) {
      context.fillStyle = owner ? theme.ink : theme.muted;
      context.font = `${Math.min(11, this.cell / 2.4)}px ${getComputedStyle(document.documentElement).getPropertyValue("--mono")}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(first, x + this.cell / 2, y + this.cell / 2 + 0.5);
    }
  }

  #slotAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell);
    const cell = Math.floor((event.clientY - box.top) / this.cell) * this.columns + column;
    const slot = this.state.pageSize + cell * this.perCell;
    return column < this.columns && slot < this.owners.length ? slot : null;
  }
}
