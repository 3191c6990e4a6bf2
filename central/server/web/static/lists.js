// The lists of queues, of nodes and of what happened, and the page of a node.

import { amount, curve, element, jobLink, link, moment, ownerLink, row, soft, span, table } from "./dom.js";
import { pages } from "./jobs.js";
import { byName } from "./racks.js";
import { changed, route } from "./route.js";

const GPU = "nvidia.com/gpu";
const WAITING_MOST = 5; // of a queue in the tree
const NODES_MOST = 200;

export function totals(overview) {
  const sums = overview.totals;
  const found = [];
  if (sums) {
    found.push(["nodes", sums.nodes], ["GPUs", sums.gpus], ["used", amount(sums.used)], ["free", amount(sums.free)], ["reserved", sums.held]);
    const rest = sums.gpus - sums.used - sums.free; // unhealthy, or of nodes that take no pods
    found.push(["unavailable", amount(rest) + (sums.unhealthy ? `, ${sums.unhealthy} unhealthy` : ""), rest ? "bad" : ""]);
    if (sums.problems) found.push(["nodes with problems", sums.problems, "bad"]);
  }
  found.push(["pending", `${overview.pending.gangs} gang${overview.pending.gangs === 1 ? "" : "s"}, ${amount(overview.pending.gpus)} GPUs`]);
  if (overview.pending.oldest !== null) found.push(["oldest", span(overview.at - overview.pending.oldest)]);
  return found.map(([name, value, kind]) => element("div", {}, element("dt", {}, name), element("dd", { class: kind || "" }, String(value))));
}

// The tree, with what waits in each queue in its order; a queue whose parent the viewer may not see is a root. pending: the page of all pending gangs. curves: {times, queues} of
// the last day, or null where no history is kept.
export function queues(page, pending, curves, now) {
  const below = new Map();
  const known = new Set(page.rows.map((each) => each.name));
  for (const each of page.rows) {
    const parent = known.has(each.parent) ? each.parent : "";
    below.set(parent, [...(below.get(parent) || []), each]);
  }
  const waits = new Map();
  for (const each of pending.rows) if (each.place !== null) waits.set(each.queue, [...(waits.get(each.queue) || []), each]);
  const rows = [];
  const scale = Math.max(1, ...page.rows.filter((each) => each.parent || page.rows.length === 1).map((each) => Math.max(each.used[GPU] || 0, each.deserved[GPU] || 0)));
  const walk = (each, depth) => {
    rows.push(queue(each, depth, scale, curves));
    const waiting = waits.get(each.name) || [];
    if (waiting.length) rows.push(inOrder(waiting, each, depth, curves ? 11 : 10, now));
    for (const child of (below.get(each.name) || []).sort((a, b) => byName(a.name, b.name))) walk(child, depth + 1);
  };
  for (const each of below.get("") || []) walk(each, 0);
  const heads = [["queue"], ["GPUs in use"], ...(curves ? [["last day"]] : []), ["used", "number"], ["deserved", "number"], ["guarantee", "number"], ["fair share", "number"], ["at most", "number"], ["requested", "number"], ["lent / borrowed"], ["gangs"]];
  const more = page.size - page.rows.length;
  return [table(heads, rows, "Queues", "stacked"), more > 0 ? soft(`and ${more} more`) : ""];
}

function waiting(rows, now) {
  return element("ol", { class: "waits" }, ...rows.map((each) => element("li", { value: each.place }, jobLink(each.namespace, each.gang, `${each.namespace}/${each.name}`), ` ${amount(each.gpus)} GPUs, waits ${span(now - each.created)}${each.start ? `, starts in about ${span(each.start - now)}` : ""} `, element("span", { class: each.cause === "never" || each.cause === "invalid" ? "bad" : "soft" }, each.cause))));
}

function inOrder(rows, each, depth, width, now) {
  const cell = element("td", { colspan: width, class: "name" }, waiting(rows.slice(0, WAITING_MOST), now), rows.length > WAITING_MOST ? link(`all ${rows.length} in their order`, "jobs", [], { queue: each.name, state: "pending", sort: "place" }) : "");
  cell.style.paddingLeft = `${(depth + 1) * 1.1}rem`;
  return element("tr", {}, cell);
}

function queue(each, depth, scale, curves) {
  const used = each.used[GPU] || 0;
  const deserved = each.deserved[GPU];
  const numbers = { used, deserved, guarantee: each.guarantee[GPU], "fair share": each.fair_share[GPU], "at most": each.capability[GPU], requested: each.leaf ? each.requested[GPU] : undefined };
  const gangs = Object.entries(each.gangs).map(([phase, count]) => `${count} ${phase}`).join(", ");
  let lent = "";
  if (deserved !== undefined && used > deserved) lent = `${amount(used - deserved)} borrowed`;
  else if (deserved !== undefined && used < deserved) lent = `${amount(deserved - used)} to lend`;
  const made = row([[link(each.name, "jobs", [], { queue: each.name }), each.closed ? element("span", { class: "soft" }, " closed") : "", each.error ? element("span", { class: "bad" }, ` ${each.error}`) : ""], "name"],
    [meter(used, deserved, scale), "chart"], ...(curves ? [[day(each.name, curves), "chart"]] : []),
    ...Object.entries(numbers).map(([label, value]) => [amount(value), "number", label]), [lent, "words"], [gangs, "words"]);
  made.firstChild.style.paddingLeft = `${depth * 1.1}rem`;
  return made;
}

function day(name, curves) {
  const points = curves.queues[name];
  if (!points || points.length < 2) return "";
  const used = points.map((point) => (point ? point[0] : NaN));
  const deserved = points.map((point) => (point && point[1] ? point[1] : NaN));
  const most = Math.max(0, ...used.filter(Number.isFinite));
  return curve(used, `GPUs in use over the last day, at most ${amount(most)}`, { mark: deserved });
}

function meter(used, deserved, scale) {
  const bar = element("div", { class: "meter", role: "img", "aria-label": `${amount(used)} GPUs in use${deserved === undefined ? "" : `, ${amount(deserved)} deserved`}` });
  const part = element("i", { class: deserved !== undefined && used > deserved ? "over" : "" });
  part.style.width = `${Math.min(100, (100 * used) / scale)}%`;
  bar.append(part);
  if (deserved !== undefined) {
    const mark = element("b");
    mark.style.left = `${Math.min(99, (100 * deserved) / scale)}%`;
    bar.append(mark);
  }
  return bar;
}

const NODE_SORTS = {
  name: (a, b) => byName(a.n, b.n),
  trouble: (a, b) => Boolean(a.x) - Boolean(b.x) || a.u.length - b.u.length,
  free: (a, b) => a.f - b.f,
  model: (a, b) => byName(a.m, b.m),
  where: (a, b) => byName(a.p.join(" "), b.p.join(" ")),
};

// map: the nodes and what is searched. The troubled ones come first.
export function nodes(map, overview) {
  const sort = route.query.get("sort") || "-trouble";
  const by = NODE_SORTS[sort.replace("-", "")] || NODE_SORTS.name;
  const found = [...map.nodes.values()].filter((node) => !map.dimmed(node)).sort((a, b) => (sort.startsWith("-") ? by(b, a) : by(a, b)) || byName(a.n, b.n));
  const first = Number(route.query.get("after") || 0);
  const shown = found.slice(first, first + NODES_MOST);
  const rows = shown.map((node) => row([link(node.n, "node", [node.n]), "name"], [node.p.filter(Boolean).join(" · "), "", "where"], [node.m, "", "model"], [`${amount(node.f)} of ${node.g}`, "number", "free"], [node.u.length ? element("span", { class: "bad" }, `${node.u.length} unhealthy`) : "", "", ""], [ownersOf(node), "reason"], [node.x ? element("span", { class: "bad" }, node.x) : "", "reason"]));
  const heads = [["node", "", "name"], ["where", "", "where"], ["model", "", "model"], ["GPUs free", "number", "free"], ["unhealthy"], ["jobs"], ["problem", "", "trouble"]];
  return [table(heads, rows, "Nodes", "stacked"), ...pages({ rows: shown, size: found.length, next: first + NODES_MOST < found.length ? first + NODES_MOST : null }), element("h3", {}, "Reservations"), ...kept(overview)];
}

export function ownersOf(node) {
  const owners = [...new Set(node.h.map((each) => each.o))];
  const shown = owners.slice(0, 4).flatMap((owner, at) => [at ? ", " : "", ownerLink(owner)]);
  return owners.length > 4 ? [...shown, ` and ${owners.length - 4} more`] : shown;
}

function kept(overview) {
  const rows = (overview.reservations || []).map((each) => row([each.gang === "-" ? "a gang of another namespace" : ownerLink(each.gang), "name"], [each.queue, "", "queue"], [each.place, "", "where"], [String(each.gpus), "number", "GPUs reserved"], [each.text, "reason"]));
  const found = [rows.length ? table([["for"], ["queue"], ["where"], ["GPUs reserved", "number"], ["state"]], rows, "Reservations", "stacked") : soft("No capacity is reserved for pending gangs.")];
  const largest = new Map();
  const levels = [];
  for (const each of overview.largest || []) {
    const key = `${each.model}, pods of ${each.pod_gpus}`;
    if (!largest.has(key)) largest.set(key, new Map());
    largest.get(key).set(each.level, each.gpus);
    if (!levels.includes(each.level)) levels.push(each.level);
  }
  const fits = [...largest.entries()].map(([key, by]) => row(key, ...levels.map((level) => [by.has(level) ? String(by.get(level)) : "", "number"])));
  if (fits.length) found.push(element("h3", {}, "GPUs of the largest gang that would fit now, in one"), table([["model and GPUs of a pod"], ...levels.map((level) => [level, "number"])], fits, "Fragmentation"));
  return found;
}

export function node(found) {
  const island = (index) => found.islands.findIndex((members) => members.includes(index));
  const owner = (each) => element("span", {}, ownerLink(each.job), each.pod ? ` ${each.pod}` : "", each.share ? ` ${each.share} %` : "", " ");
  const gpus = found.gpus.flatMap((gpu) => [
    element("dt", { class: gpu.healthy ? "" : "bad" }, `GPU ${gpu.index}`),
    element("dd", {}, ...(gpu.owners.length ? gpu.owners.map(owner) : [gpu.healthy ? "free" : ""]), gpu.healthy ? "" : element("span", { class: "bad" }, ` unhealthy${gpu.why ? `: ${gpu.why}` : ""}`), element("span", { class: "soft" }, ` ${island(gpu.index) < 0 ? "" : `island ${island(gpu.index)}`}${gpu.numa >= 0 ? `, NUMA ${gpu.numa}` : ""}${gpu.mig ? ", MIG" : ""}`))]);
  const nics = found.nics.flatMap((nic) => [element("dt", { class: nic.why ? "bad" : "" }, nic.name), element("dd", {}, nic.why ? element("span", { class: "bad" }, nic.why) : `${nic.link} ${amount(nic.gbps)} Gb/s`, element("span", { class: "soft" }, nic.numa >= 0 ? ` NUMA ${nic.numa}` : ""))]);
  const model = found.gpus.length ? `${found.gpus.length} x ${found.gpus[0].model}, ${Math.round(found.gpus[0].memory / 2 ** 30)} GiB` : `${found.allocatable} GPUs`;
  const events = [...found.events].reverse().map((each) => row([moment(each.at), "words"], [each.what, "name"], [each.text, "reason"]));
  return [soft(`${found.path.filter(Boolean).join(" · ")}${found.path.length ? "; " : ""}${model}${found.driver ? `, driver ${found.driver}` : ""}`), found.problem ? element("p", { class: "bad" }, found.problem) : "", element("dl", { class: "gpus" }, ...gpus), nics.length ? element("h3", {}, "RDMA NICs") : "", element("dl", { class: "gpus" }, ...nics), events.length ? element("h3", {}, "What happened") : "", events.length ? table([["time"], ["event"], ["what"]], events, "What happened", "stacked") : ""];
}

export function happened(page) {
  const { query } = route;
  const tabs = [["", "all"], ["job", "jobs"], ["node", "nodes"], ["queue", "queues"]].map(([kind, text]) => element("a", { href: changed({ kind, after: "" }), "aria-current": (query.get("kind") || "") === kind ? "true" : undefined }, text));
  const rows = page.rows.map((each) => row([moment(each.at), "words"], [subject(each), "name"], [each.what, "", "event"], [each.cause, "", "cause"], [each.text, "reason"]));
  return [element("p", { class: "tabs" }, ...tabs), rows.length ? table([["time"], ["what"], ["event"], ["cause"], ["text"]], rows, "What happened", "stacked") : soft("Nothing happened in the day before."), ...pages(page)];
}

function subject(each) {
  if (each.kind === "job") return jobLink(each.namespace, each.gang, `${each.namespace}/${each.name}`);
  const name = each.name.slice(each.kind.length + 1);
  return each.kind === "node" ? link(each.name, "node", [name]) : link(each.name, "jobs", [], { queue: name });
}
