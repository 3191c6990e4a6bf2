// The tables beside the map.

import { amount, curve, element, span, table } from "./dom.js";
import { byName } from "./racks.js";

const GPU = "nvidia.com/gpu";

export function totals(overview) {
  const sums = overview.totals;
  const found = [];
  if (sums) {
    found.push(["nodes", sums.nodes], ["GPUs", sums.gpus], ["used", amount(sums.used)], ["free", amount(sums.free)], ["reserved", sums.held], ["unhealthy", sums.unhealthy, sums.unhealthy ? "bad" : ""]);
    if (sums.problems) found.push(["nodes with problems", sums.problems, "bad"]);
  }
  found.push(["pending", `${overview.pending.gangs} gang${overview.pending.gangs === 1 ? "" : "s"}, ${amount(overview.pending.gpus)} GPUs`]);
  if (overview.pending.oldest !== null) found.push(["oldest", span(overview.at - overview.pending.oldest)]);
  return found.map(([name, value, kind]) => element("div", {}, element("dt", {}, name), element("dd", { class: kind || "" }, String(value))));
}

export function pending(page, now, onGang) {
  if (!page.rows.length) return element("p", { class: "soft" }, "No gang is pending.");
  const rows = page.rows.map((row) => element("tr", {},
    element("td", { class: "number", "data-label": "place" }, row.place === null ? "" : String(row.place)),
    element("td", { class: "name" }, element("button", { class: "link", type: "button", onclick: () => onGang(row.namespace, row.gang) }, `${row.namespace}/${row.name}`)),
    element("td", { "data-label": "queue" }, row.queue),
    element("td", { class: "number", "data-label": "GPUs" }, amount(row.gpus)),
    element("td", { class: "number", "data-label": "pods" }, row.placed ? `${row.pods} of ${row.pods + row.placed}` : String(row.pods)),
    element("td", { class: "number", "data-label": "waits for" }, span(now - row.created)),
    element("td", { "data-label": "start" }, row.start ? `in ${span(row.start - now)}` : row.reserved ? "unknown" : ""),
    element("td", { class: row.cause === "never" || row.cause === "invalid" ? "bad" : "", "data-label": "cause" }, row.cause),
    element("td", { class: "reason" }, row.reason, row.reserved && !row.reason.includes("reserved: ") ? element("span", { class: "held" }, ` Reserved for it: ${row.reserved}.`) : "")));
  const heads = [["#", "number"], ["gang"], ["queue"], ["GPUs", "number"], ["pods", "number"], ["waits", "number"], ["start"], ["cause"], ["why"]];
  const more = page.size - page.rows.length;
  return element("div", {}, table(heads, rows, "Pending gangs", "stacked"), more > 0 ? element("p", { class: "soft" }, `and ${more} more`) : "");
}

// curves: {times, queues} of the last day, or null where no history is kept.
export function queues(page, curves) {
  const below = new Map();
  for (const row of page.rows) {
    if (!below.has(row.parent)) below.set(row.parent, []);
    below.get(row.parent).push(row);
  }
  const rows = [];
  const scale = Math.max(1, ...page.rows.filter((row) => row.parent || page.rows.length === 1).map((row) => Math.max(row.used[GPU] || 0, row.deserved[GPU] || 0, row.requested[GPU] || 0)));
  const walk = (row, depth) => {
    rows.push(queue(row, depth, scale, curves));
    for (const child of (below.get(row.name) || []).sort((a, b) => byName(a.name, b.name))) walk(child, depth + 1);
  };
  for (const row of below.get("") || []) walk(row, 0);
  const heads = [["queue"], ["GPUs in use"], ...(curves ? [["last day"]] : []), ["used", "number"], ["deserved", "number"], ["guarantee", "number"], ["fair share", "number"], ["at most", "number"], ["requested", "number"], ["lent / borrowed"], ["gangs"]];
  const more = page.size - page.rows.length;
  return element("div", {}, table(heads, rows, "Queues"), more > 0 ? element("p", { class: "soft" }, `and ${more} more`) : "");
}

function queue(row, depth, scale, curves) {
  const used = row.used[GPU] || 0;
  const deserved = row.deserved[GPU];
  const name = element("td", { class: "name" }, row.name, row.closed ? element("span", { class: "soft" }, " closed") : "", row.error ? element("span", { class: "bad" }, ` ${row.error}`) : "");
  name.style.paddingLeft = `${depth * 1.1}rem`;
  const numbers = { used, deserved, guarantee: row.guarantee[GPU], "fair share": row.fair_share[GPU], "at most": row.capability[GPU], requested: row.leaf ? row.requested[GPU] : undefined };
  const gangs = Object.entries(row.gangs).map(([phase, count]) => `${count} ${phase}`).join(", ");
  let lent = "";
  if (deserved !== undefined && used > deserved) lent = `${amount(used - deserved)} borrowed`;
  else if (deserved !== undefined && used < deserved) lent = `${amount(deserved - used)} to lend`;
  return element("tr", {}, name, element("td", { class: "chart" }, meter(used, deserved, scale)), ...(curves ? [element("td", { class: "chart" }, day(row.name, curves))] : []), ...Object.entries(numbers).map(([label, each]) => element("td", { class: "number", "data-label": label }, amount(each))), element("td", { class: "words" }, lent), element("td", { class: "words" }, gangs));
}

function day(name, curves) {
  const points = curves.queues[name];
  if (!points || points.length < 2) return "";
  const used = points.map((point) => (point ? point[0] : NaN));
  const deserved = points.map((point) => (point && point[1] ? point[1] : NaN));
  const most = Math.max(0, ...used.filter(Number.isFinite));
  return curve(used, `GPUs in use over the last day, at most ${amount(most)}`, { mark: deserved });
}

// The size of a job over the last day, where it changed.
export function sizes(found) {
  const pods = found.sizes.map((size) => size[0]);
  const first = pods.findIndex((size) => size > 0);
  const seen = pods.slice(Math.max(0, first));
  if (first < 0 || new Set(seen).size < 2) return "";
  const since = new Date(found.times[first] * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  const running = seen.filter((size) => size > 0);
  const about = `pods since ${since}: ${Math.min(...running)} to ${Math.max(...running)}`;
  return element("div", {}, element("h3", {}, "Size over the last day"), curve(seen, about, { width: 300, height: 50 }), element("p", { class: "soft" }, about));
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

export function kept(overview) {
  const found = [];
  const reservations = (overview.reservations || []).map((row) => element("tr", {},
    element("td", { class: "name" }, row.gang === "-" ? "a gang of another namespace" : row.gang),
    element("td", { "data-label": "queue" }, row.queue), element("td", { "data-label": "where" }, row.place),
    element("td", { class: "number", "data-label": "GPUs reserved" }, String(row.gpus)), element("td", { class: "reason" }, row.text)));
  if (reservations.length) found.push(table([["for"], ["queue"], ["where"], ["GPUs reserved", "number"], ["state"]], reservations, "Reservations", "stacked"));
  else found.push(element("p", { class: "soft" }, "No capacity is reserved for pending gangs."));
  const largest = new Map();
  const levels = [];
  for (const row of overview.largest || []) {
    const key = `${row.model}, pods of ${row.pod_gpus}`;
    if (!largest.has(key)) largest.set(key, new Map());
    largest.get(key).set(row.level, row.gpus);
    if (!levels.includes(row.level)) levels.push(row.level);
  }
  const rows = [...largest.entries()].map(([key, by]) => element("tr", {}, element("td", {}, key), ...levels.map((level) => element("td", { class: "number" }, by.has(level) ? String(by.get(level)) : ""))));
  if (rows.length) found.push(element("h3", {}, "GPUs of the largest gang that would fit now, in one"), table([["model and GPUs of a pod"], ...levels.map((level) => [level, "number"])], rows, "Fragmentation"));
  return element("div", {}, ...found);
}

export function node(found) {
  const islands = found.islands.map((members, at) => [at, members]);
  const island = (index) => islands.filter(([, members]) => members.includes(index)).map(([at]) => at)[0];
  const gpus = found.gpus.flatMap((gpu) => [
    element("dt", { class: gpu.healthy ? "" : "bad" }, `GPU ${gpu.index}`),
    element("dd", {}, gpu.owners.map((owner) => (owner === "-" ? "another namespace" : owner)).join(", ") || (gpu.healthy ? "free" : ""), gpu.healthy ? "" : element("span", { class: "bad" }, ` unhealthy${gpu.why ? `: ${gpu.why}` : ""}`), element("span", { class: "soft" }, ` island ${island(gpu.index) ?? "-"}${gpu.numa >= 0 ? `, NUMA ${gpu.numa}` : ""}${gpu.mig ? ", MIG" : ""}`))]);
  const nics = found.nics.flatMap((nic) => [element("dt", { class: nic.why ? "bad" : "" }, nic.name), element("dd", {}, nic.why ? element("span", { class: "bad" }, nic.why) : `${nic.link} ${amount(nic.gbps)} Gb/s`, element("span", { class: "soft" }, nic.numa >= 0 ? ` NUMA ${nic.numa}` : ""))]);
  const model = found.gpus.length ? `${found.gpus.length} x ${found.gpus[0].model}, ${Math.round(found.gpus[0].memory / 2 ** 30)} GiB` : `${found.allocatable} GPUs`;
  return element("div", {}, element("p", {}, element("strong", {}, found.name), ` ${found.path.filter(Boolean).join(" · ")}`), element("p", { class: "soft" }, model, found.driver ? `, driver ${found.driver}` : ""), found.problem ? element("p", { class: "bad" }, found.problem) : "", element("dl", { class: "gpus" }, ...gpus), nics.length ? element("h3", {}, "RDMA NICs") : "", element("dl", { class: "gpus" }, ...nics));
}

// over: the job's size over time, an element or "".
export function gang(found, nodes, over = "") {
  const rows = found.pods.map((pod, rank) => {
    const at = nodes.get(pod.node);
    return element("tr", {}, element("td", { class: "number" }, String(rank)), element("td", { class: "name" }, pod.name), element("td", {}, pod.node || element("span", { class: "soft" }, pod.phase), at ? element("span", { class: "soft" }, ` ${at.p.filter(Boolean).pop() || ""}`) : ""), element("td", {}, pod.gpus.join(",")));
  });
  const more = found.size - found.pods.length;
  return element("div", {}, element("p", {}, element("strong", {}, `${found.namespace}/${found.name}`), ` ${found.phase}`), element("p", {}, found.reason), element("p", { class: "soft" }, `queue ${found.queue}; starts with ${found.minimum} pods${found.closest ? `; ${found.closest}` : ""}`), over, table([["rank", "number"], ["pod"], ["node"], ["GPUs"]], rows, "Pods in rank order"), more > 0 ? element("p", { class: "soft" }, `and ${more} more`) : "");
}
