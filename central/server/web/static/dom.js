// Elements from data. Data become text and attributes, never markup.

import { changed, route, to } from "./route.js";

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// A curve of values over time, as SVG; null is a gap. about: for who cannot see it. mark: a second, thin curve. at: the
// times of the values, where they are not evenly spaced.
export function curve(values, about, { mark = [], width = 120, height = 22, at = values.map((_, index) => index) } = {}) {
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": about, preserveAspectRatio: "none" });
  const top = Math.max(1, ...values.filter(Number.isFinite), ...mark.filter(Number.isFinite));
  const x = (index) => (((at[index] - at[0]) * width) / Math.max(1, at[at.length - 1] - at[0])).toFixed(1);
  const path = (points) => points.map((value, index) => (Number.isFinite(value) ? `${Number.isFinite(points[index - 1]) ? "L" : "M"}${x(index)} ${(height - 1 - (value * (height - 2)) / top).toFixed(1)}` : "")).join("");
  if (mark.some(Number.isFinite)) made.append(svg("path", { d: path(mark), class: "mark" }));
  made.append(svg("path", { d: path(values), class: "line" }));
  return made;
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The focus stays on the same one of the links and buttons with its text: what is shown is replaced every few seconds.
export function show(where, ...children) {
  const place = document.getElementById(where);
  const active = document.activeElement;
  const alike = () => [...place.querySelectorAll("a, button")].filter((each) => each.textContent === active.textContent);
  const at = place.contains(active) ? alike().indexOf(active) : -1;
  place.replaceChildren(...children.filter((child) => child !== ""));
  if (at >= 0) (alike()[at] || alike()[0])?.focus({ preventScroll: true });
}

export function link(text, view, names = [], parameters = {}, kind = undefined) {
  return element("a", { href: to(view, names, parameters), class: kind }, text);
}

// name: of a gang or its owner, such as job/sweep; "-" is one of another namespace.
export function jobLink(namespace, name, text = `${namespace}/${name}`) {
  return element("a", { href: to("job", [namespace, ...name.split("/")]) }, text);
}

// owner: NAMESPACE/NAME, or "-".
export function ownerLink(owner, text = owner) {
  const [namespace, ...name] = owner.split("/");
  return owner === "-" ? "another namespace" : jobLink(namespace, name.join("/"), text);
}

// heads: [text, class, key by which a click sorts]. kind: "stacked" if a narrow screen shows each row as a block.
export function table(heads, rows, about, kind = "") {
  const head = element("tr", {}, ...heads.map((each) => headCell(...each)));
  const found = element("table", { "aria-label": about, class: kind }, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll" }, found);
}

// The largest come first at the first click on a number, and the first of the alphabet on a name.
function headCell(text, kind = "", key = undefined) {
  if (!key) return element("th", { class: kind, scope: "col" }, text);
  const now = route.query.get("sort") || "";
  const next = now === key ? `-${key}` : now === `-${key}` ? key : kind === "number" ? `-${key}` : key;
  const order = now === key ? "ascending" : now === `-${key}` ? "descending" : undefined;
  return element("th", { class: kind, scope: "col", "aria-sort": order }, element("a", { href: changed({ sort: next, after: "" }) }, text));
}

// cells: [content, class, label on a narrow screen].
export function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => {
    const [content, kind, label] = Array.isArray(cell) ? cell : [cell];
    return element("td", { class: kind || undefined, "data-label": label }, ...(Array.isArray(content) ? content : [content]));
  }));
}

export function soft(text) {
  return element("p", { class: "soft" }, text);
}

export function amount(value) {
  return value === undefined || value === null ? "" : String(Math.round(value * 100) / 100);
}

// A name of at most so many characters, cut in the middle: names of one family differ at their ends.
export function short(name, most = 36) {
  return name.length <= most ? name : `${name.slice(0, most >> 1)}…${name.slice(1 - (most >> 1))}`;
}

// A moment with its day.
export function moment(at) {
  return new Date(at * 1000).toLocaleString([], { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
}

// The time of day, with its zone. at: seconds since 1970.
export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { timeZoneName: "short" });
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  const minutes = Math.floor((s % 3600) / 60);
  if (s < 172800) return `${Math.floor(s / 3600)} h${minutes ? ` ${String(minutes).padStart(2, "0")} min` : ""}`;
  return `${Math.floor(s / 86400)} d`;
}
