// Charts over time, from the engine's running totals. A point is the difference of two samples.

import uPlot from "uplot";
import { css } from "./colours.js";
import { count } from "./text.js";

const GAP_S = 1;
const SPAN = 600;
const LEAST = 4; // of an axis without bounds, so that its ticks are whole numbers

const percent = (value) => (value === null ? "" : `${Math.round(value * 100)}%`);
const milliseconds = (value) => (value === null ? "" : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toPrecision(3)} s`);
const rate = (a, b, name) => (b[name] - a[name]) / (b.time - a.time);
const ratio = (part, whole) => (whole > 0 ? part / whole : null);

const CHARTS = [
  { title: "Hit rate", format: percent, range: [0, 1], lines: [["new", (a, b) => ratio(b.cached_tokens - a.cached_tokens, b.prompt_tokens - a.prompt_tokens)]], fill: true, span: true },
  { title: "Tokens/s", notes: [["cached", "new"], ["computed", "request"]], format: count, lines: [["new", (a, b) => rate(a, b, "cached_tokens")], ["request", (a, b) => rate(a, b, "computed_tokens")]] },
  { title: "Pool use", format: percent, range: [0, 1], lines: [["new", (_, b) => ratio(b.num_slots - b.free_slots, b.num_slots)], ["lock", (_, b) => ratio(b.protected_slots, b.num_slots)]], fill: true },
  { title: "Evicted/s", format: count, lines: [["victim", (a, b) => rate(a, b, "evicted_tokens")]], fill: true },
  { title: "First token", format: milliseconds, lines: [["request", (a, b) => { const wait = ratio(b.ttft_sum_s - a.ttft_sum_s, b.ttft_count - a.ttft_count); return wait === null ? null : wait * 1000; }]], span: true },
];

export class Charts {
  constructor(place) {
    this.samples = [];
    this.charts = CHARTS.map((spec) => this.#make(place, spec));
    new ResizeObserver(() => this.#resize()).observe(place);
  }

  /** Begins with the samples that the server kept. */
  start(history) {
    this.samples = history.slice(-SPAN);
    this.draw();
  }

  add(sample) {
    const last = this.samples.at(-2);
    if (last && sample.time - last.time < GAP_S) this.samples.pop();
    this.samples.push(sample);
    if (this.samples.length > SPAN) this.samples.shift();
    this.draw();
  }

  draw() {
    for (const chart of this.charts) this.#fill(chart);
  }

  /** Draws in the colours of the theme that came. */
  repaint() {
    for (const chart of this.charts) {
      chart.plot.destroy();
      chart.plot = this.#plot(chart.card, chart.spec);
    }
    this.draw();
  }

  #make(place, spec) {
    const card = document.createElement("div");
    card.className = "card";
    card.innerHTML = "<h2></h2>";
    const notes = (spec.notes ?? []).map(([text, colour]) => {
      const note = Object.assign(document.createElement("small"), { textContent: text });
      note.style.color = `var(--${colour})`;
      return note;
    });
    card.querySelector("h2").append(spec.title, ...notes, document.createElement("b"));
    place.append(card);
    return { spec, card, plot: this.#plot(card, spec) };
  }

  #plot(card, spec) {
    const axis = { stroke: css("muted"), font: `10px ${css("sans")}`, grid: { stroke: css("line"), width: 1 }, ticks: { show: false } };
    return new uPlot({
      width: Math.max(card.clientWidth - 24, 100), height: 92, padding: [6, 16, 0, 0], cursor: { show: false }, legend: { show: false },
      scales: { y: { range: (_, low, high) => spec.range ?? [0, Math.max(high * 1.15 || 0, LEAST)] } },
      axes: [
        { ...axis, grid: { show: false }, size: 18, space: 70, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8)) },
        { ...axis, size: 44, space: 26, values: (_, ticks) => ticks.map(spec.format) },
      ],
      series: [{}, ...spec.lines.map(([name]) => ({ stroke: css(name), width: 1.5, spanGaps: spec.span, points: { show: false }, fill: spec.fill ? `color-mix(in srgb, ${css(name)} 14%, transparent)` : undefined }))],
    }, [[], ...spec.lines.map(() => [])], card);
  }

  #fill({ spec, plot, card }) {
    const pairs = this.samples.slice(1).map((sample, index) => [this.samples[index], sample]).filter(([a, b]) => b.time - a.time > GAP_S / 2);
    const columns = spec.lines.map(([, value]) => pairs.map(([a, b]) => value(a, b)));
    const now = Date.now() / 1000;
    plot.setData(pairs.length ? [pairs.map(([, b]) => b.time), ...columns] : [[now - 60, now], ...spec.lines.map(() => [null, null])]);
    const latest = columns[0].filter((value) => value !== null).at(-1);
    card.querySelector("b").textContent = latest === undefined ? "" : spec.format(latest);
  }

  #resize() {
    for (const { plot, card } of this.charts) plot.setSize({ width: Math.max(card.clientWidth - 24, 100), height: 92 });
  }
}
