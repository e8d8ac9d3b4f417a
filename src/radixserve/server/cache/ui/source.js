// The way to the server. The API key, if there is one, is kept in the session's storage, and goes in a header.

const KEY = "radixserve-api-key";

let replica = null;

/** From now on the cache is that of this replica; null where there is one engine. */
export function look(name) {
  replica = name;
}

function withReplica(path) {
  if (replica === null || !path.startsWith("cache/")) return path;
  return `${path}${path.includes("?") ? "&" : "?"}replica=${encodeURIComponent(replica)}`;
}

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const reply = await fetch(`../${withReplica(path)}`, { ...options, headers });
  if (reply.ok) return reply;
  const message = await reply.json().then((body) => body.error.message, () => `${path} answered ${reply.status}`);
  throw Object.assign(new Error(message), { status: reply.status });
}

export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

export async function get(path) {
  return (await ask(path)).json();
}

export async function blob(path) {
  return (await ask(path)).blob();
}

export async function post(path, body, headers = { "content-type": "application/json" }) {
  return (await ask(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body ?? {}), headers })).json();
}

/** Calls `take(kind, data)` with each event until the stream ends; throws when it can't be had. */
export async function events(take) {
  const reply = await ask("cache/events");
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const [, kind, data] = frame.match(/^event: (.*)\ndata: (.*)$/s);
      take(kind, JSON.parse(data));
    }
  }
}
