// Puts the page together: a source of events, the state they lead to, and the views that draw it.

import { actOn, confirmed, toast, wireActs } from "./acts.js";
import { Charts } from "./charts.js";
import { Colours, dark } from "./colours.js";
import { Details } from "./details.js";
import { PoolView } from "./pool_view.js";
import { RequestsView } from "./requests_view.js";
import { events, get, keepKey, look } from "./source.js";
import { CacheState, namespaceName } from "./state.js";
import { count, plural, shorten } from "./text.js";
import { TreeView, describe } from "./tree_view.js";
import { Walkthrough } from "./walkthrough.js";

const $ = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const live = !query.has("walkthrough");
const RETRY_MS = 2000;

const state = new CacheState();
const colours = new Colours(state);
const tree = new TreeView($("tree"), state, colours, {
  hover: (id) => light(id === null ? [] : [id], id === null ? null : tipOf(id)),
  select: (id) => select(id),
  refold: () => draw(),
});
const pool = new PoolView($("pool"), state, colours, { hover: hoverSlot });
const requests = new RequestsView($("requests"), $("requests-note"), state, {
  hover: (request) => light(request ? [...state.path(request.node).map((node) => node.id), -placeOf(request.id)] : []),
});
const details = new Details(state, { act: actOn, close: () => select(null) }, live);
const charts = live ? new Charts($("charts")) : null;
let stats = null;
let ranks = [];
let drawing = 0;
let found = null;

document.addEventListener("pointermove", (event) => {
  const tip = $("tip");
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
});

function placeOf(id) {
  return [...state.requests.keys()].indexOf(id) + 1;
}

function tipOf(id) {
  const node = state.nodes.get(id);
  return `${node.text ? `${shorten(node.text, 80)}\n` : ""}${describe(state, node)}`;
}

function hoverSlot(owner, slot, perCell) {
  if (owner === null) return light([]);
  const name = perCell > 1 ? `slots ${slot}–${slot + perCell - 1}` : `slot ${slot}`;
  if (owner > 0) return light([owner], `${name}\n${tipOf(owner)}`);
  const request = owner < 0 ? [...state.requests.values()][-owner - 1] : null;
  light(owner < 0 ? [owner] : [], request ? `${name}\nrequest ${request.id}` : `${name}, free`);
}

/** Marks owners in both pictures, and shows a tip. */
function light(owners, tip = null) {
  tree.light(owners);
  pool.light(owners);
  $("tip").hidden = tip === null;
  $("tip").textContent = tip ?? "";
}

function select(id) {
  tree.selected = id;
  details.open(id);
  draw();
}

/** Draws everything at the next frame of the screen, once however much came. */
function draw(animate = true) {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => drawNow(animate));
}

function drawNow(animate) {
  if (tree.selected && !state.nodes.has(tree.selected)) select(null);
  colours.refresh();
  const used = [...state.requests.values()].map((request) => request.node).filter((id) => state.nodes.has(id));
  const wanted = [...used, ...state.pins, ...state.victims.slice(0, 3), ...(tree.selected ? [tree.selected] : [])];
  tree.found = found && new Set(found);
  tree.draw({ wanted, only: found?.filter((id) => state.nodes.has(id)) ?? null, animate });
  pool.draw();
  requests.draw();
  details.draw();
  drawFigures();
  drawLegends();
  $("empty").hidden = state.numNodes > 0 || !live;
}

function drawFigures() {
  const sizes = state.sizes();
  const held = state.numSlots - sizes.free;
  $("tree-note").textContent = `${plural(state.numNodes, "node")}, ${plural(sizes.evictable + sizes.locked, "token")}`;
  $("pool-note").textContent = `${count(held)} of ${count(state.numSlots)} used, ${count(sizes.free)} free`;
  const figures = [["Pool", state.numSlots ? `${Math.round((100 * held) / state.numSlots)}%` : "–"]];
  if (stats?.prompt_tokens) figures.unshift(["Hit rate", `${Math.round((100 * stats.cached_tokens) / stats.prompt_tokens)}%`], ["Reused", `${count(stats.cached_tokens)} tokens`]);
  if (state.pins.size) figures.push(["Pins", count(state.pins.size)]);
  $("figures").replaceChildren(...figures.map(([term, text]) => {
    const row = document.createElement("div");
    row.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
    return row;
  }));
}

function drawLegends() {
  const item = (style, text, wide = false) => {
    const row = document.createElement("li");
    const sample = document.createElement("i");
    sample.classList.toggle("wide", wide);
    Object.assign(sample.style, style);
    row.append(sample, text);
    return row;
  };
  const { theme } = colours;
  const scale = `linear-gradient(90deg, ${theme.old}, ${theme.new})`;
  const colour = colours.mode === "namespace"
    ? colours.names.slice(0, 8).map((name) => item({ background: colours.hue(name) }, name))
    : [item({ background: scale }, colours.mode === "age" ? "used long ago to just now" : "no hits to most", true)];
  $("legend").replaceChildren(
    ...colour,
    item({ border: `2px solid ${theme.lock}` }, "in use or pinned"),
    item({ border: `2px dashed ${theme.victim}` }, "evicted next"),
  );
  $("pool-legend").replaceChildren(
    item({ background: theme.free }, "free"), item({ background: theme.new }, "tree"), item({ background: theme.request }, "request"),
    item({ border: `2px solid ${theme.lock}` }, "locked"),
    ...ranks.map(({ rank, num_kv_heads, device }) => {
      const textContent = `rank ${rank}: ${plural(num_kv_heads, "KV head")} on ${device}`;
      return Object.assign(document.createElement("li"), { textContent });
    }),
  );
}

async function follow() {
  for (;;) {
    try {
      const { data } = await get("v1/models");
      $("model").textContent = data[0].id;
      const info = await get("server_info");
      ranks = info.ranks;
      offerReplicas(Object.keys(info.replicas ?? {}));
      await events(take);
      toast("The server closed the stream. Trying again…");
    } catch (error) {
      if (error.status === 401) {
        await confirmed($("key-dialog"));
        keepKey($("key").value);
        continue;
      }
      toast(error.status ? error.message : "No answer from the server. Trying again…", true);
      if (error.status === 403) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Shows a choice of replicas, if there are any; one that is gone gives way to the first. */
function offerReplicas(names) {
  const select = $("replica");
  const chosen = names.includes(query.get("replica")) ? query.get("replica") : names[0] ?? null;
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  select.parentElement.hidden = names.length === 0;
  look(chosen);
}

function take(kind, data) {
  if (kind === "stats") {
    stats = data;
    charts.add(data);
    drawFigures();
    return;
  }
  state.apply(kind, data);
  if (kind === "snapshot") charts.start(data.history);
  draw(kind !== "snapshot");
}

function startWalkthrough() {
  document.body.classList.add("walkthrough");
  $("model").textContent = "The cache in eleven slots";
  $("walkthrough").textContent = "Live page";
  tree.layout.charWidth = 7.83;
  tree.largest = 1.9;
  const steps = new Walkthrough((frames) => {
    for (const { kind, data } of frames) state.apply(kind, structuredClone(data));
    draw();
  });
  steps.start(Number(query.get("step") ?? 1) - 1);
}

function wire() {
  $("fit").addEventListener("click", () => tree.fit({ all: true, animate: true }));
  $("colour").addEventListener("change", () => { colours.mode = $("colour").value; draw(false); });
  $("walkthrough").addEventListener("click", () => { location.search = live ? "?walkthrough" : ""; });
  $("search").addEventListener("input", search);
  $("replica").addEventListener("change", () => { location.search = new URLSearchParams({ replica: $("replica").value }); });
  dark.addEventListener("change", () => { colours.refresh(); charts?.repaint(); draw(false); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && tree.selected) select(null); });
  wireActs();
}

let searching = 0;

async function search() {
  const text = $("search").value;
  clearTimeout(searching);
  if (!text) {
    found = null;
    tree.followed = true;
    return draw();
  }
  searching = setTimeout(async () => {
    const answer = await get(`cache/search?text=${encodeURIComponent(text)}`).catch((error) => toast(error.message, true));
    if (!answer || $("search").value !== text) return;
    found = answer.nodes;
    tree.followed = true;
    draw();
  }, 200);
}

wire();
if (live) follow();
else startWalkthrough();

/** For tests: what the page shows, as data. */
window.radixserve = { state, tree, pool, namespaceName };
