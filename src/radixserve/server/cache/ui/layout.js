// Where each node stands. A first child continues its parent's row, so that a prompt is read along a line; the others branch off
// below, each on a row of its own: nothing can overlap.
//
// Large trees are folded: the branches that hold most tokens are open, up to BUDGET nodes, and the paths that are wanted. What is
// folded away is summed up in a row "… 12 more".

import { hierarchy } from "d3-hierarchy";
import { namespaceName } from "./state.js";
import { ranges, shorten } from "./text.js";

const BUDGET = 220;
const STEP = 60;
export const ROW = 44;
export const PILL = 18;

export class Layout {
  constructor(state) {
    this.state = state;
    this.charWidth = 6.63;
    this.slotWidth = 6.02;
    this.labelLength = 28;
    this.opened = new Map(); // node -> how many more of its children the user asked for
    this.closed = new Set();
  }

  /** Opens more of what is folded below a node. */
  open(id) {
    this.opened.set(id, (this.opened.get(id) ?? 0) + STEP);
    this.closed.delete(id);
  }

  /** Folds or unfolds what is below a node. */
  toggle(id) {
    if (this.closed.delete(id)) return;
    this.closed.add(id);
  }

  /** Everything to draw: {items, rows, width}. `wanted`: ids whose paths stay open; `only`: if given, nothing else is shown. */
  compute(wanted, only = null) {
    const children = this.state.children();
    const top = hierarchy({ id: 0 }, (node) => children.get(node.id)).sum((node) => node.tokens ?? 0);
    const byId = new Map(top.descendants().map((item) => [item.data.id, item]));
    const forced = new Set();
    for (const id of only ?? wanted) for (let item = byId.get(id); item && !forced.has(item); item = item.parent) forced.add(item);
    const shown = only ? forced : this.#choose(top, forced);
    this.items = [];
    this.rows = 0;
    this.width = 0;
    for (const root of top.children ?? []) this.#root(root, shown);
    return this;
  }

  /** The nodes that are open: forced ones, then those with most tokens. */
  #choose(top, forced) {
    const shown = new Set([top, ...forced]);
    const queue = [top];
    const inQueue = new Set(queue);
    let left = BUDGET;
    while (queue.length) {
      queue.sort((a, b) => a.value - b.value);
      const item = queue.pop();
      if (this.closed.has(item.data.id)) continue;
      const children = [...(item.children ?? [])].sort((a, b) => b.value - a.value);
      let extra = this.opened.get(item.data.id) ?? 0;
      for (const child of children) {
        const isForced = forced.has(child);
        if (!isForced && left <= 0 && extra-- <= 0) continue;
        if (!isForced) left -= 1;
        shown.add(child);
        if (!inQueue.has(child)) queue.push(child);
        inQueue.add(child);
      }
    }
    return shown;
  }

  #root(root, shown) {
    const name = namespaceName(root.data.namespace);
    const width = name !== "shared" || this.#several() ? 22 + name.length * 6.4 : 14;
    this.items.push({ kind: "root", id: root.data.id, x: 8, right: width, row: this.rows, name: width > 14 ? name : "", data: root.data });
    this.#below(root, shown, { x: 8, right: width, row: this.rows });
    this.rows += 1;
  }

  #several() {
    let roots = 0;
    for (const node of this.state.nodes.values()) roots += node.parent ? 0 : 1;
    return roots > 1;
  }

  /** Places the children of `item`; iterative, since prompts can be nested deeper than a stack is. */
  #below(item, shown, place) {
    const stack = [{ item, place, next: 0, placed: 0, kept: (item.children ?? []).filter((child) => shown.has(child)) }];
    while (stack.length) {
      const frame = stack.at(-1);
      const child = frame.kept[frame.next];
      if (!child) {
        const hidden = (frame.item.children?.length ?? 0) - frame.kept.length;
        if (hidden) this.#more(frame, hidden);
        stack.pop();
        continue;
      }
      frame.next += 1;
      if (frame.placed++) this.rows += 1;
      const own = this.#node(child, frame.place, frame.placed === 1);
      stack.push({ item: child, place: own, next: 0, placed: 0, kept: (child.children ?? []).filter((below) => shown.has(below)) });
    }
  }

  #node(item, above, straight) {
    const node = item.data;
    const text = this.state.redacted ? `${node.tokens} tokens` : shorten(node.text, this.labelLength);
    const slots = ranges(node.slots, 2);
    const start = straight ? above.right : above.x + 12;
    const labelX = start + (straight ? 8 : 4);
    const edgeEnd = labelX + Math.max([...text].length * this.charWidth, 18) + 6;
    const pillWidth = Math.max(slots.length * this.slotWidth + 14, 26);
    const placed = {
      kind: "node", id: node.id, data: node, text, slots, straight, row: this.rows, above, start, labelX,
      left: edgeEnd, x: edgeEnd + 10, right: edgeEnd + pillWidth, pillWidth, value: item.value,
    };
    this.items.push(placed);
    this.width = Math.max(this.width, placed.right);
    return placed;
  }

  #more(frame, hidden) {
    if (frame.placed) this.rows += 1;
    const { place, item } = frame;
    const folded = (item.children ?? []).reduce((sum, child) => sum + child.value, 0) - frame.kept.reduce((sum, child) => sum + child.value, 0);
    const start = frame.placed ? place.x + 12 : place.right;
    this.items.push({ kind: "more", id: item.data.id, row: this.rows, above: place, straight: !frame.placed, start, hidden, tokens: folded });
    this.width = Math.max(this.width, start + 150);
  }
}
