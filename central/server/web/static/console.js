// The console: one page that follows the scheduler by server-sent events, and asks for what changed.

import { Failed, get, setToken, stream, takeToken } from "./api.js";
import { amount, clock, element, short, show } from "./dom.js";
import * as panels from "./panels.js";
import { RackMap, owned } from "./racks.js";
import { WhatIf } from "./what_if.js";

const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const map = new RackMap(document.getElementById("racks"), chosen);
const whatIf = new WhatIf(map);
let version = 0;
let detail = null; // {kind: "node" | "gang", ...}
let loading = Promise.resolve();
let past = null; // the time that is shown; null: now
let times = []; // of the pictures in the history
let curves = null;
let curvesAt = 0;
let live = null; // the last overview of the present

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(document.getElementById("token").value.trim());
  document.getElementById("token").value = "";
  follow();
});
document.getElementById("colour").addEventListener("change", (event) => { map.colourBy = event.target.value; redraw(); });
document.getElementById("find").addEventListener("input", (event) => { map.find = event.target.value; redraw(); });

const slider = document.getElementById("slider");
slider.addEventListener("input", () => { moveTo(Number(slider.value) >= times.length ? null : times[Number(slider.value)]); });
document.getElementById("now").addEventListener("click", () => moveTo(null));

if (takeToken()) follow();
else login("");

function login(why) {
  document.getElementById("main").hidden = true;
  document.getElementById("login").hidden = false;
  document.getElementById("token").focus();
  say(why, Boolean(why));
}

async function follow() {
  document.getElementById("login").hidden = true;
  say("asking the scheduler", false);
  let failures = 0;
  for (;;) {
    try {
      await stream("/api/events", (overview) => {
        failures = 0;
        loading = loading.then(() => update(overview)).catch(stopped);
      });
    } catch (error) {
      if (error instanceof Failed && error.status === 401) {
        setToken("");
        return login(error.message);
      }
      say(error instanceof Failed ? error.message : "no answer from the scheduler; trying again", true);
      await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]));
    }
  }
}

function stopped(error) {
  say(error.message, true);
}

// Only the last of several moves is shown: a slider sends many.
function moveTo(time) {
  past = time;
  moment();
  loading = loading.then(async () => {
    if (past !== time) return;
    version = 0;
    await present(past === null ? live || (await get("/api/overview")) : await get("/api/overview", { at: past }));
  }).catch(stopped);
}

function moment() {
  const at = past === null ? "now" : new Date(past * 1000).toLocaleString([], { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  document.getElementById("moment").textContent = at;
  slider.setAttribute("aria-valuetext", at);
  document.getElementById("now").disabled = past === null;
  document.documentElement.classList.toggle("past", past !== null);
  if (past === null) slider.value = times.length;
}

async function update(overview) {
  live = overview;
  await history(overview);
  if (past === null) await present(overview);
}

// Once a minute: which times there are, and the queues' curves.
async function history(overview) {
  if (overview.at - curvesAt < 60) return;
  curvesAt = overview.at;
  const found = await get("/api/history");
  times = found.times;
  document.getElementById("time").hidden = !times.length;
  slider.max = times.length;
  slider.value = past === null ? times.length : Math.max(0, times.findIndex((time) => time >= past));
  curves = found.kept && overview.may.queues ? await get("/api/curves") : null;
  moment();
}

async function present(overview) {
  const at = past === null ? {} : { at: past };
  document.getElementById("main").hidden = false;
  show("totals", ...panels.totals(overview));
  document.getElementById("topology").hidden = !overview.may.nodes;
  document.getElementById("kept").hidden = !overview.may.nodes;
  document.getElementById("queues").hidden = !overview.may.queues;
  document.getElementById("what-if").hidden = !live?.may.what_if || past !== null;
  if (overview.may.nodes) {
    map.levels = overview.levels;
    await nodes(at);
    map.held = new Map();
    for (const row of overview.reservations) {
      for (const [name, gpus] of Object.entries(row.nodes)) map.held.set(name, (map.held.get(name) || 0) + gpus);
    }
    show("kept-body", panels.kept(overview));
  }
  show("waiting-body", panels.pending(await get("/api/pending", { limit: 100, ...at }), overview.at, showGang));
  if (overview.may.queues) {
    const queues = await get("/api/queues", { limit: 500, ...at });
    whatIf.queues = queues.rows.map((row) => row.name).filter((name) => !name.startsWith("("));
    show("queues-body", panels.queues(queues, curves));
  }
  redraw();
  await refresh();
  if (past !== null) say("showing the past", false);
  else say(`live, ${clock(overview.at)}`, false);
  document.documentElement.dataset.shown = past === null ? "now" : past;
  document.documentElement.dataset.version = version;
}

// Fetches the nodes that changed since the last time, page by page.
async function nodes(at) {
  let after = "";
  let since = version;
  let fresh = null;
  for (;;) {
    const page = await get("/api/nodes", { since, after, ...at });
    if ((page.all || !since) && !fresh) fresh = new Map();
    for (const node of page.nodes) (fresh || map.nodes).set(node.n, node);
    if (page.next === null) {
      if (fresh) map.nodes = fresh;
      version = at.at ? 0 : page.version;
      return;
    }
    after = page.next;
  }
}

function redraw() {
  map.draw();
  const node = map.nodes.get(map.chosen);
  if (node) chosen(node, false);
  const sums = [...map.sums().entries()];
  const swatch = (colour) => {
    const made = element("i", { class: "swatch" });
    made.style.background = colour;
    return made;
  };
  const found = map.colourBy === "state" ? [["in use", map.paint?.good]] : sums.slice(0, 12).map(([name, gpus]) => [`${name} ${amount(gpus)}`, map.colours.get(name), `${short(name)} ${amount(gpus)}`]);
  if (sums.length > 12 && map.colourBy !== "state") found.push([`and ${sums.length - 12} more`, "transparent"]);
  if (map.paint) found.push(["free", map.paint.free], ["reserved", map.paint.held], ["unhealthy", map.paint.bad]);
  show("legend", ...found.map(([name, colour, shown]) => element("span", { title: name }, colour === "transparent" ? "" : swatch(colour), shown || name)));
}

function chosen(node, open) {
  const jobs = new Set([...owned(node).values()].map((each) => (each.o === "-" ? "another namespace" : each.o)));
  const text = `${node.n} (${node.p.filter(Boolean).join(" · ") || "no rack"}): ${amount(node.f)} of ${node.g} GPUs free${node.u.length ? `, ${node.u.length} unhealthy` : ""}${jobs.size ? `; ${[...jobs].join(", ")}` : ""}${node.x ? `; ${node.x}` : ""}`;
  const line = document.getElementById("chosen");
  if (line.textContent !== text) line.textContent = text; // a screen reader reads it again when it is set
  if (open) {
    detail = { kind: "node", name: node.n };
    map.marked = new Set();
    refresh(true).catch(stopped);
  }
}

function showGang(namespace, name) {
  detail = { kind: "gang", namespace, name };
  refresh(true).catch(stopped);
}

async function refresh(focus = false) {
  const asked = detail;
  if (!asked) return;
  try {
    if (asked.kind === "node") show("detail-body", panels.node(await get("/api/node", { name: asked.name })), ...ask("cordon", asked.name, "What if it is cordoned?"), ...ask("drain", asked.name, "Drained?"));
    else {
      const found = await get("/api/gang", { namespace: asked.namespace, name: asked.name });
      map.marked = new Set(found.pods.map((pod) => pod.node).filter(Boolean));
      map.draw();
      const over = times.length ? panels.sizes(await get("/api/sizes", { namespace: found.namespace, name: found.owner })) : "";
      show("detail-body", panels.gang(found, map.nodes, over), ...ask("without", `${found.namespace}/${found.name}`, "What if it ends now?"));
    }
  } catch (error) {
    if (!(error instanceof Failed) || error.status === 401) throw error;
    show("detail-body", element("p", { class: "soft" }, error.message));
  }
  if (focus) document.getElementById("detail").scrollIntoView({ block: "nearest" });
}

// A button that fills in the form of what-if.
function ask(kind, name, text) {
  if (!live?.may.what_if || past !== null) return [];
  return [element("button", { type: "button", onclick: () => whatIf.begin(kind, name) }, text), " "];
}

function say(text, bad) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = bad ? "bad" : "";
}
