// What can be done to the cache from the page. Each act is a documented endpoint; what it answers is shown as it is.

import { blob, post } from "./source.js";

const $ = (id) => document.getElementById(id);
let fading;

export function toast(message, failed = false) {
  const place = $("toast");
  place.textContent = message;
  place.classList.toggle("error", failed);
  place.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { place.hidden = true; }, failed ? 8000 : 4000);
}

/** Shows a dialog; resolves to whether it was confirmed. */
export function confirmed(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true }));
}

function sure(question) {
  $("ask-text").textContent = question;
  return confirmed($("ask-dialog"));
}

async function told(work) {
  try {
    const answer = await work();
    if (answer?.message) toast(answer.message);
  } catch (error) {
    toast(error.message, true);
  }
}

async function save(path) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await blob(path));
  link.download = "prompts.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}

/** An act on a node: pin, pin-subtree, unpin, evict or export. */
export function actOn(name, { id, tokens }) {
  return told(async () => {
    switch (name) {
      case "pin": return post("cache/pin", { node: id });
      case "pin-subtree": return post("cache/pin", { node: id, subtree: true });
      case "unpin": return post("cache/unpin", { node: id });
      case "export": return save(`cache/export?node=${id}`);
      case "evict":
        if (await sure(`Evict this node (${tokens} tokens) and everything below it?`)) return post("cache/evict", { node: id });
    }
  });
}

/** Wires the acts on the whole cache. */
export function wireActs() {
  $("export").addEventListener("click", () => told(() => save("cache/export")));
  $("flush").addEventListener("click", () => told(async () => {
    if (await sure("Empty the tree and end all pins?")) return post("flush_cache");
  }));
  $("warm-file").addEventListener("change", async () => { $("warm-text").value = await $("warm-file").files[0].text(); });
  $("warm").addEventListener("click", () => told(async () => {
    if (!(await confirmed($("warm-dialog")))) return;
    const text = $("warm-text").value;
    const json = /^\s*[{"]/.test(text);
    toast("Computing…");
    return post("cache/warm", text, { "content-type": json ? "application/jsonl" : "text/plain" });
  }));
}
