// The console: views that follow the scheduler by server-sent events. The address says what is shown (route.js).

import { Failed, get, setToken, stream, takeToken, takeTokenOfTabs } from "./api.js";
import { amount, clock, element, link, moment, ownerLink, short, show, soft } from "./dom.js";
import * as jobs from "./jobs.js";
import * as lists from "./lists.js";
import { RackMap, owned } from "./racks.js";
import { changed, read, replace, route, to } from "./route.js";
import { WhatIf } from "./what_if.js";

const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const VIEWS = { jobs: "Jobs", queues: "Queues", nodes: "Nodes", happened: "What happened", map: "Map", "what-if": "What if" };
const FIND = { jobs: "name, user or node", nodes: "node, rack or job", happened: "name or text", map: "node, rack or job" };
export const map = new RackMap(document.getElementById("racks"), {
  onChoose: chosen,
  onOpen: (node, owner) => { location.hash = owner && owner.o !== "-" ? to("job", owner.o.split("/")) : to("node", [node.n]); },
  onZoom: (path) => { location.hash = changed({ zoom: path.join("/") }); },
});
const whatIf = new WhatIf(map);
let version = 0; // of the nodes
let versionOf = null; // the time of the nodes
let loading = Promise.resolve();
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
const filter = document.getElementById("filter");
filter.addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("input", () => replace({ find: filter.elements.find.value, colour: filter.elements.colour.value === "job" ? "" : filter.elements.colour.value, after: "" }));
const slider = document.getElementById("slider");
slider.addEventListener("input", () => replace({ at: Number(slider.value) >= times.length ? "" : String(times[Number(slider.value)]), after: "" }));
document.getElementById("now").addEventListener("click", () => replace({ at: "" }));
addEventListener("hashchange", (event) => {
  const before = `${route.view}/${route.names}`;
  read();
  if (live) again();
  if (`${route.view}/${route.names}` !== before && event.isTrusted) {
    document.getElementById("view").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
});

takeToken();
read();
follow();

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
    const hidden = await seen();
    try {
      await stream("/api/events", (overview) => {
        failures = 0;
        live = overview;
        again();
      }, hidden);
    } catch (error) {
      if (hidden.aborted) continue;
      if (error instanceof Failed && error.status === 401) {
        const had = setToken("");
        if (!had && await takeTokenOfTabs()) continue;
        return login(had ? error.message : "");
      }
      say(error instanceof Failed ? error.message : "no answer from the scheduler; trying again", true);
      await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]));
    }
  }
}

// Waits until this tab can be seen; the signal ends what it follows once it cannot. A browser opens six connections to
// a server, for all of its tabs: the seventh tab would wait for ever if hidden ones kept theirs.
async function seen() {
  const until = (state) => new Promise((done) => addEventListener("visibilitychange", function looked() {
    if (document.visibilityState !== state) return;
    removeEventListener("visibilitychange", looked);
    done();
  }));
  if (document.hidden) await until("visible");
  const ended = new AbortController();
  until("hidden").then(() => ended.abort());
  return ended.signal;
}

function past() {
  return route.query.has("at") ? Number(route.query.get("at")) : null;
}

// Shows what the address says. Only the last of several moves is shown: a slider sends many.
function again() {
  const asked = location.hash;
  moved();
  loading = loading.then(async () => {
    if (location.hash !== asked) return;
    await history();
    await present(past() === null ? live : await get("/api/overview", { at: past() }));
  }).catch((error) => say(error.message, true));
}

function moved() {
  const at = past() === null ? "now" : moment(past());
  document.getElementById("moment").textContent = at;
  slider.setAttribute("aria-valuetext", at);
  document.getElementById("now").disabled = past() === null;
  document.documentElement.classList.toggle("past", past() !== null);
  slider.value = past() === null ? times.length : Math.max(0, times.findIndex((time) => time >= past()));
}

// Once a minute: which times there are, and the queues' curves.
async function history() {
  if (live.at - curvesAt < 60) return;
  curvesAt = live.at;
  const found = await get("/api/history");
  times = found.times;
  document.getElementById("time").hidden = !times.length;
  slider.max = times.length;
  curves = found.kept && live.may.queues ? await get("/api/curves") : null;
  moved();
}

async function present(overview) {
  const { view, names, query } = route;
  const at = past() === null ? {} : { at: past() };
  map.find = query.get("find") || "";
  const parameters = { ...Object.fromEntries(query), limit: 200, ...at };
  const found = await (SHOWN[view] || SHOWN.jobs)(overview, parameters, at).catch((error) => {
    if (!(error instanceof Failed) || error.status === 401) throw error;
    return [soft(error.message)];
  });
  if (route.view !== view || route.names !== names) return; // the address has changed meanwhile
  frame(overview, { job: names.join("/"), node: names[0] }[view] || VIEWS[view] || view);
  show("body", ...found);
  if (view === "map") drawMap();
  if (past() !== null) say("showing the past", false);
  else say(`live, ${clock(overview.at)}`, false);
  document.documentElement.dataset.shown = past() === null ? "now" : past();
  Object.assign(document.documentElement.dataset, { version, view: [view, ...names].join("/") });
}

// What is around the view.
function frame(overview, title) {
  const { view, query } = route;
  document.getElementById("main").hidden = false;
  show("totals", ...lists.totals(overview));
  navigation(overview);
  document.getElementById("title").textContent = title;
  document.title = `${title} · Lockstep`;
  for (const id of ["map", "legend", "hint", "chosen", "colours"]) document.getElementById(id).hidden = view !== "map";
  document.getElementById("what-if").hidden = view !== "what-if";
  filter.hidden = !(view in FIND);
  filter.elements.find.placeholder = FIND[view] || "";
  if (document.activeElement !== filter.elements.find) filter.elements.find.value = query.get("find") || "";
  filter.elements.colour.value = map.colourBy = query.get("colour") || "job";
}

function navigation(overview) {
  const may = { ...overview.may, map: overview.may.nodes, queues: true, jobs: true, happened: true, "what-if": live.may.what_if && past() === null };
  const found = Object.entries(VIEWS).filter(([view]) => may[view]);
  show("views", ...found.map(([view, text]) => element("a", { href: to(view), "aria-current": view === route.view ? "page" : undefined }, text)));
}

const SHOWN = {
  jobs: async (overview, parameters) => jobs.list(await get("/api/jobs", parameters), overview.at),
  job: async (overview, parameters, at) => {
    const [namespace, ...rest] = route.names;
    const asked = { namespace, name: rest.join("/") };
    const record = await known("/api/job", asked);
    const found = record?.stage === "deleted" && past() === null ? null : await known("/api/gang", { ...asked, ...at });
    if (!record && !found) return [soft(`No job or gang ${namespace}/${asked.name} is known; jobs that ended more than a week ago are forgotten.`)];
    const objects = [record?.gang || found.name, (record?.name || found.owner).split("/").pop(), ...(found?.pods || []).slice(0, 100).map((pod) => pod.name)];
    const events = past() === null ? await known("/api/kube-events", { namespace, names: [...new Set(objects)].join() }).catch((error) => ({ rows: [], why: error.message })) : null;
    return [...jobs.page(record, found, overview.at), ...jobs.events(events), ...ask("without", `${namespace}/${record?.name || found.owner}`, "What if it ends now?", found)];
  },
  queues: async (overview, parameters, at) => {
    const pending = await get("/api/pending", { limit: 500, ...at });
    const found = await get("/api/queues", { limit: 500, ...at });
    const note = overview.may.queues ? [] : [soft("You may not get queues: these are the queues in which your gangs wait or run.")];
    return [...note, ...lists.queues(found, pending, curves, overview.at)];
  },
  nodes: async (overview, parameters, at) => {
    await nodes(at, overview);
    return lists.nodes(map, overview);
  },
  node: async () => [...lists.node(await get("/api/node", { name: route.names[0] })), ...ask("cordon", route.names[0], "What if it is cordoned?"), ...ask("drain", route.names[0], "Drained?")],
  happened: async (overview, parameters) => lists.happened(await get("/api/happened", parameters)),
  map: async (overview, parameters, at) => {
    await nodes(at, overview);
    return [];
  },
  "what-if": async (overview, parameters, at) => {
    await nodes(at, overview);
    if (overview.may.queues) whatIf.queues = (await get("/api/queues", { limit: 500, ...at })).rows.map((each) => each.name).filter((name) => !name.startsWith("("));
    return [];
  },
};

async function known(path, asked) {
  try {
    return await get(path, asked);
  } catch (error) {
    if (error instanceof Failed && error.status === 404) return null;
    throw error;
  }
}

// Fetches the nodes that changed since the last time, page by page.
async function nodes(at, overview) {
  let after = "";
  const moment = at.at || 0;
  const since = moment === versionOf && !moment ? version : 0;
  let all = null;
  for (;;) {
    const page = await get("/api/nodes", { since, after, ...at });
    all = all === null && (page.all || !since);
    map.update(page.nodes, all);
    if (page.next === null) {
      version = moment ? 0 : page.version;
      versionOf = moment;
      break;
    }
    after = page.next;
  }
  map.levels = overview.levels;
  map.held = new Map();
  for (const each of overview.reservations) {
    for (const [name, gpus] of Object.entries(each.nodes)) map.held.set(name, (map.held.get(name) || 0) + gpus);
  }
}

function drawMap() {
  map.marked = new Set((route.query.get("mark") || "").split(",").filter(Boolean));
  const zoom = (route.query.get("zoom") || "").split("/").filter(Boolean);
  if (zoom.join() !== map.zoom.join()) Object.assign(map, { zoom, racks: null });
  map.draw();
  legend();
  if (map.nodes.has(map.chosen)) chosen(map.nodes.get(map.chosen));
}

// The way to the domain that is shown, the domains in it, and the colours with their jobs.
function legend() {
  const way = [link("all", "map", [], withZoom([])), ...map.zoom.map((name, at) => link(name, "map", [], withZoom(map.zoom.slice(0, at + 1))))];
  const inside = map.domains();
  const domains = inside.slice(0, 100).map((each) => element("a", { href: to("map", [], withZoom(each.path)), title: `${each.path.join(" · ")}: ${each.nodes} nodes` }, `${each.path.at(-1)} ${each.free}/${each.gpus}`));
  const sums = [...map.sums().entries()];
  const swatch = (colour) => {
    const made = element("i", { class: "swatch" });
    made.style.background = colour;
    return made;
  };
  const named = map.colourBy === "state" ? [["in use", map.paint.good]] : sums.slice(0, 12).map(([name, gpus]) => [name, map.colours.get(name), gpus]);
  const entries = named.map(([name, colour, gpus]) => element("span", { title: name }, swatch(colour), gpus === undefined ? name : map.colourBy === "queue" ? link(`${short(name)} ${amount(gpus)}`, "jobs", [], { queue: name, state: "running" }) : ownerLink(name, `${short(name)} ${amount(gpus)}`)));
  if (sums.length > 12 && map.colourBy !== "state") entries.push(link(`and ${sums.length - 12} more`, "jobs", [], { state: "running", sort: "-gpus" }));
  for (const [name, colour] of [["free", "free"], ["reserved", "held"], ["unhealthy", "bad"], ["unavailable", "hidden"]]) entries.push(element("span", {}, swatch(map.paint[colour]), name));
  show("legend", element("p", { class: "way" }, ...way.flatMap((each, at) => (at ? [" › ", each] : [each]))), domains.length ? element("p", { class: "domains" }, "GPUs free: ", ...domains) : "", element("p", { class: "colours" }, ...entries));
}

function withZoom(path) {
  return { ...Object.fromEntries(route.query), zoom: path.join("/") };
}

function chosen(node) {
  const text = `${node.n} (${node.p.filter(Boolean).join(" · ") || "no rack"}): ${amount(node.f)} of ${node.g} GPUs free${node.u.length ? `, ${node.u.length} unhealthy` : ""}${node.x ? `; ${node.x}` : ""} `;
  const line = document.getElementById("chosen");
  if (line.dataset.text === text + owned(node).size) return; // a screen reader reads it again when it is set
  line.dataset.text = text + owned(node).size;
  show("chosen", link(node.n, "node", [node.n]), text.slice(node.n.length), ...lists.ownersOf(node));
}

// A button that fills in the form of what-if.
function ask(kind, name, text, wanted = true) {
  if (!live?.may.what_if || past() !== null || !wanted) return [];
  return [element("button", { type: "button", onclick: () => { location.hash = to("what-if"); whatIf.begin(kind, name); } }, text), " "];
}

function say(text, bad) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = bad ? "bad" : "";
}
