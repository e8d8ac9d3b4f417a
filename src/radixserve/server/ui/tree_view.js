// The tree as a picture: tokens on the edges, slots in the nodes. Only what is in sight is in the document.

import { easeCubicOut } from "d3-ease";
import { select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity } from "d3-zoom";
import { Layout, PILL, ROW } from "./layout.js";
import { count, plural, visible } from "./text.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const TURN = 8;

export class TreeView {
  /** `on`: {hover(id or null), select(id)}. */
  constructor(place, state, colours, on) {
    this.place = place;
    this.state = state;
    this.colours = colours;
    this.on = on;
    this.layout = new Layout(state);
    this.svg = select(place).append("svg").attr("role", "img").attr("aria-label", "The radix tree");
    this.world = this.svg.append("g");
    this.edges = this.world.append("g");
    this.nodes = this.world.append("g");
    this.transform = zoomIdentity;
    this.followed = true;
    this.largest = 1.3;
    this.lit = new Set();
    this.zoom = zoom().scaleExtent([0.05, 2.5]).on("zoom", (event) => this.#moved(event));
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    new ResizeObserver(() => (this.followed ? this.fit() : this.#join(false))).observe(place);
  }

  /** Draws the state as it is now; what became different moves, unless motion is unwanted. */
  draw({ wanted = [], only = null, animate = true } = {}) {
    this.layout.compute(wanted, only);
    this.order = new Map(this.state.victims.map((id, index) => [id, index + 1]));
    if (this.followed) this.fit(animate);
    this.#join(animate);
  }

  /** Shows all of it, as large as it can be but not larger than life; a long tree from its top. */
  fit(animate = false) {
    this.followed = true;
    const { width, height } = this.place.getBoundingClientRect();
    if (!width || !this.layout.items) return;
    const tall = this.layout.rows * ROW;
    const scale = Math.max(Math.min(this.largest, (width - 24) / (this.layout.width + 8), Math.max((height - 8) / tall, 0.85)), 0.85);
    const y = Math.max((height - tall * scale) / 2, 4);
    this.#go(zoomIdentity.translate(12, Math.min(y, 90)).scale(scale), animate);
  }

  /** Brings a node into sight. */
  show(id) {
    const item = this.layout.items.find((one) => one.kind === "node" && one.id === id);
    if (!item) return;
    this.followed = false;
    const { width, height } = this.place.getBoundingClientRect();
    const scale = Math.max(this.transform.k, 0.8);
    const x = Math.min(width / 2 - item.left * scale, 12);
    this.#go(zoomIdentity.translate(x, height / 2 - this.#y(item) * scale).scale(scale), true);
  }

  /** Marks nodes that the pointer is about, here or in the pool. */
  light(ids) {
    this.lit = new Set(ids);
    this.nodes.selectAll("g.node").classed("lit", (item) => this.lit.has(item.id));
  }

  #go(transform, animate) {
    const target = animate && !still.matches ? this.svg.transition("zoom").duration(350).ease(easeCubicOut) : this.svg;
    this.moving = true;
    target.call(this.zoom.transform, transform);
    this.moving = false;
  }

  #moved(event) {
    if (event.sourceEvent) this.followed = false;
    this.transform = event.transform;
    this.world.attr("transform", event.transform);
    if (this.layout.items) this.#join(false);
  }

  #y(item) {
    return item.row * ROW + ROW * 0.62;
  }

  #join(animate) {
    const { height } = this.place.getBoundingClientRect();
    const first = (-this.transform.y / this.transform.k) / ROW - 2;
    const last = ((height - this.transform.y) / this.transform.k) / ROW + 1;
    const inSight = this.layout.items.filter((item) => item.row >= first && item.row <= last);
    const edges = this.layout.items.filter((item) => item.kind !== "root" && item.row >= first && (item.above.row <= last || item.row <= last));
    const speed = animate && !still.matches ? 420 : 0;
    this.#drawEdges(edges, speed);
    this.#drawNodes(inSight, speed);
  }

  #drawEdges(items, speed) {
    const move = (selection) => (speed ? selection.transition().duration(speed).ease(easeCubicOut) : selection.interrupt());
    const path = (item) => this.#path(item);
    const width = (item) => (item.kind === "more" ? 1.5 : Math.min(1.6 + Math.log2(item.data.tokens + 1) * 0.62, 9));
    const colour = (item) => (item.kind === "more" ? this.colours.theme["free-line"] : this.colours.of(item.data));
    this.edges.selectAll("path").data(items, key).join(
      (enter) => enter.append("path").attr("class", "edge").attr("d", path).attr("stroke", colour).attr("stroke-width", width)
        .style("opacity", speed ? 0 : 1).call((added) => move(added).style("opacity", 1)),
      (update) => update.call((kept) => move(kept).style("opacity", 1).attr("d", path).attr("stroke", colour).attr("stroke-width", width)),
      (exit) => (speed ? exit.transition().duration(speed).attr("stroke", this.colours.theme.victim).style("opacity", 0).remove() : exit.remove()),
    );
  }

  #path(item) {
    const y = this.#y(item);
    const end = item.kind === "more" ? item.start + 10 : item.left;
    if (item.straight) return `M${item.above.right} ${y}H${end}`;
    const from = this.#y(item.above) + PILL / 2;
    const x = item.above.x;
    return `M${x} ${from}V${y - TURN}Q${x} ${y} ${x + TURN} ${y}H${end}`;
  }

  #drawNodes(items, speed) {
    const place = (item) => `translate(0 ${this.#y(item)})`;
    const groups = this.nodes.selectAll("g.item").data(items, key).join(
      (enter) => enter.append("g").attr("transform", place).each((item, i, all) => this.#make(select(all[i]), item))
        .style("opacity", speed ? 0 : null).call((added) => speed && added.transition("fade").duration(speed).style("opacity", 1)),
      (update) => update.call((kept) => (speed ? kept.transition("move").duration(speed).ease(easeCubicOut).attr("transform", place) : kept.interrupt("move").attr("transform", place))),
      (exit) => (speed ? exit.attr("class", "leaving").transition("fade").duration(speed).style("opacity", 0).remove() : exit.remove()),
    );
    groups.each((item, i, all) => this.#fill(select(all[i]), item, speed));
  }

  #make(group, item) {
    group.attr("class", `item ${item.kind}`);
    if (item.kind === "root") {
      group.append("circle").attr("r", 5).attr("cx", 8);
      group.append("text").attr("x", 18).attr("y", 4);
    } else if (item.kind === "more") {
      group.append("text").attr("y", 4);
      group.on("click", (_, now) => { this.layout.open(now.id); this.on.refold(); });
    } else {
      group.attr("data-node", item.id);
      group.append("text").attr("class", "label").attr("y", -7);
      group.append("rect").attr("class", "ring").attr("rx", PILL / 2 + 3).attr("height", PILL + 6).attr("y", -PILL / 2 - 3);
      group.append("rect").attr("class", "pill").attr("rx", PILL / 2).attr("height", PILL).attr("y", -PILL / 2);
      group.append("text").attr("class", "slots").attr("y", 3.5);
      group.append("text").attr("class", "badge").attr("y", 21);
      group.append("rect").attr("class", "hit").attr("fill", "transparent").attr("height", 34).attr("y", -20);
      group.on("pointerenter", (_, now) => this.on.hover(now.id)).on("pointerleave", () => this.on.hover(null))
        .on("click", (_, now) => this.on.select(now.id))
        .on("dblclick", (_, now) => { this.layout.toggle(now.id); this.on.refold(); });
    }
  }

  #fill(group, item, speed) {
    if (item.kind === "root") {
      group.select("text").text(item.name);
      return;
    }
    if (item.kind === "more") {
      group.select("text").attr("x", item.start + 16).text(`… ${plural(item.hidden, "more branch").replace("branchs", "branches")}, ${plural(item.tokens, "token")}`);
      return;
    }
    const node = item.data;
    const move = (selection) => (speed && group.property("seen") ? selection.transition().duration(speed).ease(easeCubicOut) : selection.interrupt());
    const colour = this.colours.of(node);
    const turn = this.order.get(node.id);
    const pinned = this.state.pins.has(node.id);
    group.classed("locked", node.locks > 0).classed("victim", turn !== undefined && turn <= 3 && node.locks === 0)
      .classed("lit", this.lit.has(node.id)).classed("selected", node.id === this.selected)
      .classed("found", this.found?.has(node.id) ?? false).classed("dim", this.found ? !this.found.has(node.id) : false);
    const label = group.select(".label");
    if (label.property("shown") !== item.text) {
      label.property("shown", item.text).selectAll("tspan").data(visible(item.text)).join("tspan")
        .attr("class", (piece) => (piece.mark ? "mark" : null)).text((piece) => piece.text);
    }
    move(label).attr("x", item.labelX);
    move(group.select(".pill")).attr("x", item.left).attr("width", item.pillWidth).attr("stroke", colour).attr("fill", this.colours.ground(colour));
    move(group.select(".ring")).attr("x", item.left - 3).attr("width", item.pillWidth + 6);
    group.select(".hit").attr("x", item.labelX).attr("width", item.right - item.labelX);
    move(group.select(".slots")).attr("x", item.left + item.pillWidth / 2);
    group.select(".slots").text(item.slots);
    const badge = pinned ? "pinned" : node.locks ? "in use" : turn !== undefined && turn <= 3 ? `next ${turn}` : "";
    move(group.select(".badge")).attr("x", item.left + 16);
    group.select(".badge").text(badge).classed("held", node.locks > 0).classed("turn", node.locks === 0);
    group.property("seen", true);
  }
}

const key = (item) => `${item.kind}${item.id}`;

/** What a tip says of a node. */
export function describe(state, node) {
  const age = state.clock - node.time;
  const used = age ? `last used ${plural(age, "request")} ago` : "used by the latest request";
  const lock = state.pins.has(node.id) ? ", pinned" : node.locks ? `, in use by ${count(node.locks)}` : "";
  return `${plural(node.tokens, "token")}, ${plural(node.hits, "hit")}, ${used}${lock}`;
}
