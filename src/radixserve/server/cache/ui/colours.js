// Colours of nodes: by age, hits or namespace. Read from the style sheet, so that they follow the theme.

import { interpolateLab } from "d3-interpolate";
import { namespaceName } from "./state.js";

const HUES = [
  ["#0f8a7e", "#3cc4b4"], ["#3d76b8", "#79aee8"], ["#b4557a", "#e58bb0"], ["#8a7a1f", "#cdbb55"],
  ["#a0522d", "#dd946d"], ["#4f8a3a", "#8fc878"], ["#5f6b76", "#a3b0bc"],
];

export const dark = matchMedia("(prefers-color-scheme: dark)");

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export class Colours {
  constructor(state) {
    this.state = state;
    this.mode = "age";
    this.refresh();
  }

  /** Reads the theme and the ranges again. */
  refresh() {
    this.theme = Object.fromEntries(["card", "ink", "muted", "new", "old", "lock", "victim", "request", "free", "free-line"].map((n) => [n, css(n)]));
    this.tint = interpolateLab(this.theme.old, this.theme.new);
    this.oldest = 1;
    this.most = 1;
    for (const node of this.state.nodes.values()) {
      if (!node.parent) continue;
      this.oldest = Math.max(this.oldest, this.state.clock - node.time);
      this.most = Math.max(this.most, node.hits);
    }
    this.names = [...this.state.nodes.values()].filter((node) => !node.parent).map((node) => namespaceName(node.namespace));
  }

  of(node) {
    if (this.mode === "namespace") return this.hue(namespaceName(this.state.root(node.id)?.namespace ?? {}));
    const share = this.mode === "hits"
      ? Math.log1p(node.hits) / Math.log1p(this.most)
      : 1 - Math.log1p(this.state.clock - node.time) / Math.log1p(this.oldest);
    return this.tint(share);
  }

  hue(name) {
    return HUES[Math.max(this.names.indexOf(name), 0) % HUES.length][dark.matches ? 1 : 0];
  }

  /** The colour over the card, thinned: a ground that text can stand on. */
  ground(colour, share = 0.2) {
    return interpolateLab(this.theme.card, colour)(share);
  }
}
