// The tree as a picture: tokens on the edges, slots in the nodes. Only what is in sight is in the document.

import { easeCubicOut } from "d3-ease";
import { select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity } from "d3-zoom";
import { Layout, PILL, ROW } from "./layout.js";
import { count, plural, visible } from "./text.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const TURN = 8;
const READABLE = 0.85;
const SMALLEST = 0.15;
const NARROW = 600;

export class TreeView {
  /** `on`: {hover(id or null), select(id), refold()}. */
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
    this.layout.labelLength = this.place.clientWidth < NARROW ? 16 : 28;
    this.layout.compute(wanted, only);
    this.order = new Map(this.state.victims.map((id, index) => [id, index + 1]));
    if (this.followed) this.fit({ animate });
    this.#join(animate);
  }

  /** Shows as much as can be read, from the top; with `all`, as much as can be made out. */
  fit({ all = false, animate = false } = {}) {
    this.followed = !all;
    const { width, height } = this.place.getBoundingClientRect();
    if (!width || !this.layout.items) return;
    const tall = this.layout.rows * ROW;
    const scale = Math.max(Math.min(this.largest, (width - 24) / (this.layout.width + 8), (height - 8) / tall), all ? SMALLEST : READABLE);
    const y = Math.max((height - tall * scale) / 2, 4);
    this.#go(zoomIdentity.translate(12, Math.min(y, 90)).scale(scale), animate);
  }

  /** Marks nodes that the pointer is about, here or in the pool. */
  light(ids) {
    this.lit = new Set(ids);
    this.nodes.selectAll("g.item.node").classed("lit", (item) => this.lit.has(item.id));
  }

  #go(transform, animate) {
    const target = animate && !still.matches ? this.svg.transition("zoom").duration(350).ease(easeCubicOut) : this.svg;
    target.call(this.zoom.transform, transform);
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
    const path = (item) => this.#path(item);
    const width = (item) => (item.kind === "more" ? 1.5 : Math.min(1.6 + Math.log2(item.data.tokens + 1) * 0.62, 9));
    const colour = (item) => (item.kind === "more" ? this.colours.theme["free-line"] : this.colours.of(item.data));
    this.edges.selectAll("path.live").data(items, key).join(
      (enter) => enter.append("path").attr("class", "edge live").attr("d", path).property("shape", path)
        .call((added) => speed && fade(added.style("opacity", 0), speed, 1)),
      (update) => update.each((item, i, all) => {
        const shape = path(item);
        if (all[i].shape === shape) return;
        all[i].shape = shape;
        glide(select(all[i]), speed).attr("d", shape);
      }),
      (exit) => (speed ? fade(exit.attr("class", "edge").attr("stroke", this.colours.theme.victim), speed, 0).remove() : exit.remove()),
    ).attr("stroke", colour).attr("stroke-width", width);
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
        .property("row", (item) => item.row).call((added) => speed && fade(added.style("opacity", 0), speed, 1)),
      (update) => update.each((item, i, all) => {
        if (all[i].row === item.row) return;
        all[i].row = item.row;
        glide(select(all[i]), speed).attr("transform", place(item));
      }),
      (exit) => (speed ? fade(exit.classed("item", false).classed("leaving", true), speed, 0).remove() : exit.remove()),
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
    group.select(".pill").attr("stroke", colour).attr("fill", this.colours.ground(colour));
    group.select(".slots").text(item.slots);
    const badge = pinned ? "pinned" : node.locks ? "in use" : turn !== undefined && turn <= 3 ? `next ${turn}` : "";
    group.select(".badge").text(badge).classed("held", node.locks > 0).classed("turn", node.locks === 0);
    this.#place(group, item, speed);
  }

  /** Puts the parts of a node where they belong; they glide there if they stood elsewhere. */
  #place(group, item, speed) {
    const shape = `${item.labelX} ${item.left} ${item.pillWidth}`;
    const before = group.property("shape");
    if (before === shape) return;
    group.property("shape", shape);
    const move = (name) => glide(group.select(name), before ? speed : 0);
    move(".label").attr("x", item.labelX);
    move(".pill").attr("x", item.left).attr("width", item.pillWidth);
    move(".ring").attr("x", item.left - 3).attr("width", item.pillWidth + 6);
    move(".slots").attr("x", item.left + item.pillWidth / 2);
    move(".badge").attr("x", item.left + 16);
    group.select(".hit").attr("x", item.labelX).attr("width", item.right - item.labelX);
  }
}

/** The selection in motion, or at once when there is no time. */
function glide(selection, speed) {
  return speed ? selection.transition().duration(speed).ease(easeCubicOut) : selection.interrupt();
}

function fade(selection, speed, opacity) {
  return selection.transition("fade").duration(speed).style("opacity", opacity);
}

const key = (item) => `${item.kind}${item.id}`;

/** What a tip says of a node. */
export function describe(state, node) {
  const age = state.clock - node.time;
  const used = age ? `last used ${plural(age, "request")} ago` : "used by the latest request";
  const lock = state.pins.has(node.id) ? ", pinned" : node.locks ? `, in use by ${count(node.locks)}` : "";
  return `${plural(node.tokens, "token")}, ${plural(node.hits, "hit")}, ${used}${lock}`;
}
