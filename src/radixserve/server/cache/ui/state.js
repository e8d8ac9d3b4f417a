// What the engine said: nodes, requests, pins, victims. Everything that is drawn comes from here.

export class CacheState {
  constructor() {
    this.clear();
  }

  clear() {
    this.nodes = new Map();
    this.requests = new Map();
    this.pins = new Set();
    this.victims = [];
    this.clock = -1;
    this.numSlots = 0;
    this.pageSize = 1;
    this.redacted = false;
  }

  /** Takes a snapshot or a change, as `docs/ui.md` describes them. */
  apply(kind, data) {
    if (kind === "snapshot") {
      this.clear();
      this.numSlots = data.num_slots;
      this.pageSize = data.page_size;
      this.redacted = data.redacted;
    }
    for (const id of data.removed ?? []) this.nodes.delete(id);
    for (const node of data.nodes) this.nodes.set(node.id, node);
    for (const [id, time, hits, locks] of data.used ?? []) {
      const node = this.nodes.get(id);
      node.locks = locks;
      if (node.parent) Object.assign(node, { time, hits });
    }
    for (const id of data.ended ?? []) this.requests.delete(id);
    for (const request of data.requests) this.requests.set(request.id, request);
    this.pins = new Set(data.pins);
    this.victims = data.victims;
    this.clock = data.clock;
  }

  /** Nodes without the roots. */
  get numNodes() {
    let number = 0;
    for (const node of this.nodes.values()) number += node.parent ? 1 : 0;
    return number;
  }

  /** Children of each node, oldest first; a split's upper half has the age of the node it was cut from, so the order is stable. */
  children() {
    const found = new Map();
    for (const node of this.nodes.values()) {
      const siblings = found.get(node.parent);
      if (siblings) siblings.push(node);
      else found.set(node.parent, [node]);
    }
    for (const siblings of found.values()) siblings.sort((a, b) => (a.created ?? 0) - (b.created ?? 0) || a.id - b.id);
    return found;
  }

  /** The nodes from the root's child down to `id`. */
  path(id) {
    const found = [];
    for (let node = this.nodes.get(id); node?.parent; node = this.nodes.get(node.parent)) found.unshift(node);
    return found;
  }

  root(id) {
    let node = this.nodes.get(id);
    while (node?.parent) node = this.nodes.get(node.parent);
    return node;
  }

  /** Owner of each slot: 0 free, a node's id, or minus the place of a request in `requests`, from 1. */
  owners() {
    const owners = new Int32Array(this.numSlots + this.pageSize);
    for (const node of this.nodes.values())
      for (const [first, last] of node.slots ?? []) owners.fill(node.id, first, last + 1);
    let place = 0;
    for (const request of this.requests.values()) {
      place += 1;
      for (const [first, last] of request.slots) owners.fill(-place, first, last + 1);
    }
    return owners;
  }

  /** Slots by what holds them. */
  sizes() {
    const sizes = { free: this.numSlots, evictable: 0, locked: 0, request: 0 };
    for (const node of this.nodes.values()) {
      if (!node.parent) continue;
      sizes[node.locks ? "locked" : "evictable"] += node.tokens;
      sizes.free -= node.tokens;
    }
    for (const request of this.requests.values())
      for (const [first, last] of request.slots) {
        sizes.request += last - first + 1;
        sizes.free -= last - first + 1;
      }
    return sizes;
  }
}

/** A namespace's name. */
export function namespaceName({ adapter, salt }) {
  return [adapter && `adapter ${adapter}`, salt && `salt ${salt}`].filter(Boolean).join(", ") || "shared";
}
