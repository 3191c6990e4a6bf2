// Requests with the viewer's token. The token stays in this browser's tabs (sessionStorage) and in no address.

const KEY = "lockstep-token";
const ANSWER_MS = 300;
const tabs = new BroadcastChannel(KEY);
tabs.addEventListener("message", ({ data }) => {
  const token = sessionStorage.getItem(KEY);
  if (data === "asked" && token) tabs.postMessage({ token });
});

export function takeToken() {
  const given = decodeURIComponent(location.hash.match(/[#&?]token=([^&]*)/)?.[1] || "");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.hash.replace(/[#&?]token=[^&]*/, ""));
  }
  return sessionStorage.getItem(KEY) || "";
}

// Returns whether there was one before.
export function setToken(token) {
  const before = sessionStorage.getItem(KEY);
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
  return Boolean(before);
}

// Asks the other tabs, for a link that was opened in a tab of its own. Returns whether one of them has a token.
export function takeTokenOfTabs() {
  return new Promise((done) => {
    const given = ({ data }) => {
      if (!data.token) return;
      sessionStorage.setItem(KEY, data.token);
      tabs.removeEventListener("message", given);
      done(true);
    };
    tabs.addEventListener("message", given);
    tabs.postMessage("asked");
    setTimeout(() => { tabs.removeEventListener("message", given); done(false); }, ANSWER_MS);
  });
}

export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, parameters = {}, signal = undefined, body = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {}; // else a proxy may have logged the user in
  const reply = await fetch(`.${path}` + (query ? `?${query}` : ""), { headers, signal, body, method: body === undefined ? "GET" : "POST", cache: "no-store" });
  if (!reply.ok) {
    const why = await reply.json().catch(() => ({}));
    throw new Failed(reply.status, why.error || reply.statusText);
  }
  return reply;
}

export async function get(path, parameters) {
  return (await request(path, parameters)).json();
}

export async function post(path, question, signal) {
  return (await request(path, {}, signal, JSON.stringify(question))).json();
}

// Server-sent events by fetch, because EventSource sends no Authorization. Ends when the server ends it.
export async function stream(path, onEvent, signal) {
  const reader = (await request(path, {}, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) onEvent(JSON.parse(event.slice(6)));
    }
  }
}
