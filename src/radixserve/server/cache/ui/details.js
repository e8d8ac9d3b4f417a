// The panel of one node: what it holds, how it is used, and what can be done to it.

import { ranges, plural, count } from "./text.js";
import { namespaceName } from "./state.js";
import { get } from "./source.js";

const $ = (id) => document.getElementById(id);

export class Details {
  /** `on`: {act(name, node), close()}. `live`: whether there is a server to ask for the whole text. */
  constructor(state, on, live) {
    this.state = state;
    this.live = live;
    $("details-close").addEventListener("click", () => on.close());
    for (const button of $("details-acts").querySelectorAll("button"))
      button.addEventListener("click", () => on.act(button.dataset.act, this.state.nodes.get(this.id)));
  }

  /** Opens the panel for a node, or closes it (null). */
  async open(id) {
    this.id = id;
    $("details-card").hidden = id === null;
    if (id === null) return;
    this.draw();
    const node = this.state.nodes.get(id);
    $("details-text").textContent = this.state.path(id).map((one) => one.text).join(" ");
    if (!this.live || this.state.redacted) return;
    const whole = await get(`cache/node/${id}`).catch(() => null);
    if (!whole || this.id !== id || !node) return;
    const above = document.createElement("span");
    above.className = "above";
    above.textContent = whole.prefix_text.slice(0, whole.prefix_text.length - whole.edge_text.length);
    $("details-text").replaceChildren(above, whole.edge_text);
    $("details-text").scrollTop = $("details-text").scrollHeight;
  }

  /** The figures as they are now. */
  draw() {
    const node = this.id ? this.state.nodes.get(this.id) : null;
    if (!node) return;
    const path = this.state.path(this.id);
    const age = this.state.clock - node.time;
    $("details-title").textContent = `number ${node.id}`;
    const rows = [
      ["Tokens", `${count(node.tokens)}, ${count(path.reduce((sum, one) => sum + one.tokens, 0))} from the root`],
      ["Slots", ranges(node.slots, 6)],
      ["Hits", count(node.hits)],
      ["Last used", age ? `${plural(age, "request")} ago` : "by the latest request"],
      ["Made", `at time ${count(node.created)}, now ${count(this.state.clock)}`],
      ["Lock", this.state.pins.has(node.id) ? "pinned" : node.locks ? `in use by ${count(node.locks)}` : "none"],
      ["Namespace", namespaceName(this.state.root(node.id).namespace)],
    ];
    $("details").replaceChildren(...rows.map(([term, text]) => {
      const row = document.createDocumentFragment();
      row.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
      return row;
    }));
  }
}
