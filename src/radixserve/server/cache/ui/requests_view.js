// Requests that run and wait: what of each was cached, is computed, and is still to do.

import { select } from "d3-selection";
import { count, plural, visible } from "./text.js";

const MOST = 60;

export class RequestsView {
  /** `on.hover(request or null)`. */
  constructor(list, note, state, on) {
    this.list = select(list);
    this.note = note;
    this.state = state;
    this.on = on;
  }

  draw() {
    const all = [...this.state.requests.values()].sort((a, b) => (a.phase === b.phase ? Number(a.id) - Number(b.id) : a.phase === "running" ? -1 : 1));
    const running = all.filter((request) => request.phase === "running").length;
    this.note.textContent = all.length ? `${running} running, ${all.length - running} waiting` : "";
    const rows = this.list.selectAll("li.request").data(all.slice(0, MOST), (request) => request.id).join(
      (enter) => enter.append("li").attr("class", "request").html(
        '<div class="line"><span class="text"><bdi></bdi></span><span class="phase"></span></div><div class="bar"><i class="cached"></i><i class="computed"></i></div><div class="counts"></div>',
      ).on("pointerenter", (_, request) => this.on.hover(request)).on("pointerleave", () => this.on.hover(null)),
    ).order();
    rows.attr("data-request", (request) => request.id);
    rows.select("bdi").text((request) => this.#title(request));
    rows.select(".phase").text((request) => request.phase);
    const share = (tokens, request) => `${(100 * tokens) / (request.prompt_tokens + request.generated_tokens)}%`;
    const cached = (request) => request.cached_tokens ?? 0;
    const computed = (request) => Math.max(request.computed_tokens - cached(request), 0);
    rows.select(".cached").style("width", (request) => share(cached(request), request)).style("background", "var(--new)");
    rows.select(".computed").style("width", (request) => share(computed(request), request)).style("background", "var(--request)");
    rows.select(".counts").text((request) => this.#counts(request, cached(request), computed(request)));
    const hidden = all.length - MOST;
    this.list.selectAll("li.none").data(all.length === 0 ? ["None at the moment."] : hidden > 0 ? [`${hidden} more`] : []).join("li")
      .attr("class", "none").text((text) => text).raise();
  }

  #title(request) {
    const text = visible(request.text).map((piece) => piece.text).join("");
    return text || `request ${request.id}`;
  }

  #counts(request, cached, computed) {
    const prompt = plural(request.prompt_tokens, "token");
    if (request.phase === "waiting") return `${prompt} to find or compute`;
    return `${prompt}: ${count(cached)} cached, ${count(computed)} computed, ${count(request.generated_tokens)} generated`;
  }
}
