// The list of jobs, and the page of one: its life from its record, and what the scheduler says of it now.

import { amount, curve, element, jobLink, link, moment, row, soft, span, table } from "./dom.js";
import { changed, route } from "./route.js";

const HOUR_S = 3600;
const STATES = ["running", "pending", "ended"];
const CHOSEN = ["queue", "namespace", "user"];

export function list(page, now) {
  const { query } = route;
  const all = STATES.reduce((sum, state) => sum + (page.states[state] || 0), 0);
  const tabs = [["", "all", all], ...STATES.map((state) => [state, state, page.states[state] || 0])].map(([state, text, count]) =>
    element("a", { href: changed({ state, after: "" }), "aria-current": (query.get("state") || "") === state ? "true" : undefined }, `${text} ${count}`));
  const chips = CHOSEN.filter((key) => query.has(key)).map((key) => element("a", { class: "chip", href: changed({ [key]: "", after: "" }), title: "show all again" }, `${key} ${query.get(key)} ×`));
  const used = page.rows.some((each) => each.gpu_use); // else no agent reports it
  const rows = page.rows.map((each) => row(
    [jobLink(each.namespace, each.gang, `${each.namespace}/${each.name}`), "name"],
    [state(each.stage), "", "state"],
    [chosenBy("queue", each.queue), "", "queue"], [chosenBy("user", each.user), "", "user"],
    [amount(each.gpus), "number", "GPUs"], [String(each.pods), "number", "pods"],
    [where(each), "", "where"], ...(used ? [[use(each.gpu_use, 0), "number", "GPU use"]] : []),
    [span(each.waited), "number", "waited"], [each.ran === null ? "" : span(each.ran), "number", "ran"],
    [why(each, now), "reason"]));
  const heads = [["job", "", "name"], ["state", "", "state"], ["queue", "", "queue"], ["user", "", "user"], ["GPUs", "number", "gpus"], ["pods", "number", "pods"], ["where"], ...(used ? [["GPU use", "number", "idle"]] : []), ["waited", "number", "waited"], ["ran", "number", "ran"], ["why"]];
  return [element("p", { class: "tabs" }, ...tabs, ...chips), rows.length ? table(heads, rows, "Jobs", "stacked") : soft("No job is like that."), ...pages(page)];
}

// How busy the GPUs of a running job are, as the agents report it, or since when none of them is.
function use(found, details) {
  if (!found) return "";
  const busy = found.utilization === null ? [] : [`${Math.round(100 * found.utilization)} %`];
  const memory = details && found.memory !== null ? [`${(found.memory / 2 ** 30).toFixed(1)} GiB of their memory`] : [];
  return [...busy, ...memory, ...(found.idle_s > 60 ? [`idle ${span(found.idle_s)}`] : [])].join(", ");
}

// Links to the pages before and after.
export function pages(page) {
  const first = Number(route.query.get("after") || 0);
  if (!first && page.next === null) return [];
  const back = first ? [element("a", { href: changed({ after: String(Math.max(0, first - page.rows.length) || "") }) }, "back"), " "] : [];
  return [element("p", {}, `${first + 1} to ${first + page.rows.length} of ${page.size} `, ...back, page.next === null ? "" : element("a", { href: changed({ after: String(page.next) }) }, "more"))];
}

function chosenBy(key, value) {
  return value ? link(value, "jobs", [], { [key]: value }) : "";
}

function state(stage) {
  return element("span", { class: `badge ${stage}` }, stage);
}

function where(each) {
  const shown = each.nodes.slice(0, 2).flatMap((name, at) => [at ? ", " : "", link(name, "node", [name], {}, "whole")]);
  return each.node_count > 2 ? [...shown, ` and ${each.node_count - 2} more`] : shown;
}

function why(each, now) {
  if (each.place === null && !each.why) return "";
  const start = each.start ? `starts in about ${span(each.start - now)}; ` : "";
  return `${each.place ? `#${each.place} in its queue; ` : ""}${start}${each.why || each.reason || ""}`;
}

// record: its life; found: what the scheduler says of it at the time that is shown. One of the two may be null.
export function page(record, found, now) {
  const namespace = (record || found).namespace;
  const name = record ? record.name : found.owner;
  return [facts(record, found, now), found ? present(found, now) : "", record ? life(record, now) : "", found?.pods.length ? topology(found) : "", record ? happened(record) : "", found?.pods.length ? pods(found) : "", commands(namespace, name, found)];
}

function facts(record, found, now) {
  const spent = record?.gpu_seconds;
  const waited = Object.entries(record?.waited || {}).filter(([, seconds]) => seconds >= 1).map(([cause, seconds]) => `${cause} ${span(seconds)}`).join(", ");
  const last = record?.sizes.at(-1);
  const shown = {
    state: state(record?.stage || found.phase), queue: chosenBy("queue", record?.queue || found.queue), namespace: chosenBy("namespace", (record || found).namespace), user: chosenBy("user", record?.user),
    created: record ? moment(record.created) : "", started: record?.started ? moment(record.started) : "", ended: record?.ended ? moment(record.ended) : "",
    ran: record?.started ? span((record.ended || now) - record.started) : "", waited,
    size: last && record.ended === null ? `${last[1]} pods, ${amount(last[2])} GPUs` : "", "starts with": found?.minimum ? `${found.minimum} pods` : "",
    "GPU use": use(record?.gpu_use, 1),
    priority: found?.priority ? String(found.priority) : "",
    "GPU-hours": spent ? `${(spent.allocated / HOUR_S).toFixed(2)}${spent.rated ? `, ${Math.round((100 * spent.busy) / spent.rated)} % busy` : ""}${spent.lost ? `, ${(spent.lost / HOUR_S).toFixed(2)} of them lost to evictions` : ""}` : "",
    "GPU time": activities(record?.activities || {}),
  };
  return element("dl", { class: "facts" }, ...Object.entries(shown).filter(([, value]) => value).map(([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value))));
}

function activities(seconds) {
  const found = Object.entries(seconds).filter(([, each]) => each).sort((one, other) => other[1] - one[1]);
  const total = found.reduce((sum, [, each]) => sum + each, 0);
  return found.map(([name, each]) => `${((100 * each) / total).toFixed(1)} % ${name}`).join(", ");
}

function present(found, now) {
  const place = found.place ? `Place ${found.place} of ${found.pending} in its queue; expected start: ${found.start ? `in about ${span(found.start - now)}, ${moment(found.start)}` : "unknown"}.` : "";
  return element("div", {}, found.reason ? element("p", {}, found.reason) : "", place ? element("p", { class: "held" }, place) : "", found.sized ? element("p", {}, found.sized) : "", found.closest && !found.reason.includes(found.closest) ? soft(found.closest) : "");
}

// How large it was and what it waited for, on one axis of time.
function life(record, now) {
  const end = record.ended || Math.max(now, record.counted);
  const whole = Math.max(1, end - record.created);
  const strip = element("div", { class: "strip", role: "img", "aria-label": "Times of waiting and of running; the table below lists them" });
  const part = (since, until, kind, about) => {
    const made = element("i", { class: kind, title: about });
    made.style.left = `${(100 * Math.max(0, since - record.created)) / whole}%`;
    made.style.width = `${Math.max(0.2, (100 * (until - Math.max(since, record.created))) / whole)}%`;
    strip.append(made);
  };
  const sizes = record.sizes.flatMap(([at, count], index) => [...(index ? [[at, record.sizes[index - 1][1]]] : [[record.created, 0], [at, 0]]), [at, count]]);
  record.sizes.forEach(([at, count], index) => count && part(at, record.sizes[index + 1]?.[0] ?? end, "ran", `${count} pods from ${moment(at)}`));
  for (const each of record.waits) part(each.since, each.until ?? end, "waited", `${each.cause} from ${moment(each.since)}`);
  const counts = record.sizes.map((size) => size[1]);
  const running = counts.filter(Boolean);
  const about = running.length ? `pods: ${Math.min(...running)} to ${Math.max(...running)}` : "no pods yet";
  if (sizes.length) sizes.push([end, counts.at(-1)]);
  const waits = record.waits.map((each) => row([moment(each.since), "words"], [span((each.until ?? end) - each.since), "number", "waited"], [each.cause, "", "cause"], [each.reason, "reason"]));
  return element("div", {},
    element("h3", {}, "Size and waiting over its life"),
    sizes.length ? element("div", { class: "size" }, curve(sizes.map((size) => size[1]), `Size over its life, ${about}`, { at: sizes.map((size) => size[0]), width: 600, height: 60 })) : "",
    strip, element("p", { class: "soft ends" }, element("span", {}, moment(record.created)), element("span", {}, about), element("span", {}, record.ended ? moment(end) : "now")),
    waits.length ? element("h3", {}, "What it waited for") : "", waits.length ? table([["since"], ["waited", "number"], ["cause"], ["reason"]], waits, "Times of waiting", "stacked") : "");
}

function happened(record) {
  const rows = [...record.events].reverse().map((each) => row([moment(each.at), "words"], [each.what, "name"], [each.cause, "", "cause"], [each.text, "reason"]));
  return element("div", {}, element("h3", {}, "What happened"), table([["time"], ["event"], ["cause"], ["what"]], rows, "What happened", "stacked"), record.events_dropped ? soft(`${record.events_dropped} more events are not kept`) : "");
}

// Its ranks by rack and node: a cell for each GPU of the node.
function topology(found) {
  const racks = new Map();
  found.pods.forEach((pod, rank) => {
    if (!pod.node) return;
    const rack = pod.path.filter(Boolean).join(" · ") || "no rack";
    if (!racks.has(rack)) racks.set(rack, new Map());
    if (!racks.get(rack).has(pod.node)) racks.get(rack).set(pod.node, { of: pod.of, ranks: new Map() });
    for (const gpu of pod.gpus) racks.get(rack).get(pod.node).ranks.set(gpu, rank);
  });
  if (!racks.size) return "";
  const shown = [...racks.entries()].map(([rack, nodes]) => element("div", { class: "rack" }, element("h4", {}, rack), ...[...nodes.entries()].map(([name, node]) => element("div", { class: "ranks" }, link(name, "node", [name]), ...Array.from({ length: Math.max(node.of, ...[...node.ranks.keys()].map((gpu) => gpu + 1), 0) }, (_, gpu) => element("i", { class: node.ranks.has(gpu) ? "own" : "", title: `GPU ${gpu}` }, node.ranks.has(gpu) ? String(node.ranks.get(gpu)) : ""))))));
  return element("div", {}, element("h3", {}, "Ranks by rack and node"), element("div", { class: "racks" }, ...shown), element("p", {}, link("Show it on the map", "map", [], { find: `${found.namespace}/${found.owner}` })));
}

function pods(found) {
  const rows = found.pods.map((pod, rank) => row([String(rank), "number", "rank"], [pod.name, "name"], [pod.node ? link(pod.node, "node", [pod.node]) : "", "", "node"], [pod.path.filter(Boolean).join(" · "), "", "where"], [`${pod.gpus.join(", ")}${pod.share ? ` (${pod.share} %)` : ""}`, "", "GPUs"], [pod.phase, "", "phase"]));
  const more = found.size - found.pods.length;
  return element("div", {}, element("h3", {}, "Pods in rank order"), table([["rank", "number"], ["pod"], ["node"], ["where"], ["GPUs"], ["phase"]], rows, "Pods", "stacked"), more > 0 ? soft(`and ${more} more`) : "");
}

// found: Events of the API server; null: they are not offered.
export function events(found) {
  if (!found) return [];
  const rows = found.rows.map((each) => row([moment(Date.parse(each.at) / 1000), "words"], [each.about, "name"], [element("span", { class: each.type === "Warning" ? "bad" : "" }, each.reason), "", "reason"], [each.message, "reason"]));
  return [element("h3", {}, "Events"), rows.length ? table([["time"], ["about"], ["reason"], ["message"]], rows, "Events", "stacked") : soft(found.why || "The API server has no Events of it.")];
}

function commands(namespace, name, found) {
  const own = name.startsWith("job/");
  const short = name.split("/").pop();
  const lines = own ? [`lockstep job logs ${short} -n ${namespace}`, `lockstep job history ${short} -n ${namespace}`] : [`lockstep explain ${namespace}/${short}`];
  if (found?.pods.length) lines.push(`kubectl logs -n ${namespace} ${found.pods[0].name}`);
  lines.push(`kubectl events -n ${namespace}${own ? ` --for job.batch.volcano.sh/${short}` : ""}`);
  return element("div", {}, element("h3", {}, "Commands for its output and Events"), ...lines.map((line) => element("pre", { tabindex: "0" }, line)));
}

