// Elements from data. Data become text and attributes, never markup.

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

// A curve of values over time, as SVG; null is a gap. about: for who cannot see it. mark: a second, thin curve.
export function curve(values, about, { mark = [], width = 120, height = 22 } = {}) {
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": about, preserveAspectRatio: "none" });
  const top = Math.max(1, ...values.filter(Number.isFinite), ...mark.filter(Number.isFinite));
  const path = (points) => points.map((value, at) => (Number.isFinite(value) ? `${Number.isFinite(points[at - 1]) ? "L" : "M"}${((at * width) / Math.max(1, points.length - 1)).toFixed(1)} ${(height - 1 - (value * (height - 2)) / top).toFixed(1)}` : "")).join("");
  if (mark.some(Number.isFinite)) made.append(svg("path", { d: path(mark), class: "mark" }));
  made.append(svg("path", { d: path(values), class: "line" }));
  return made;
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The focus stays on the button of the same name: what is shown is replaced every few seconds.
export function show(where, ...children) {
  const place = document.getElementById(where);
  const focused = place.contains(document.activeElement) ? document.activeElement.textContent : null;
  place.replaceChildren(...children);
  if (focused === null) return;
  [...place.querySelectorAll("button")].find((each) => each.textContent === focused)?.focus({ preventScroll: true });
}

// kind: "stacked" if a narrow screen shows each row as a block.
export function table(heads, rows, about, kind = "") {
  const head = element("tr", {}, ...heads.map(([text, kind]) => element("th", { class: kind || "", scope: "col" }, text)));
  const found = element("table", { "aria-label": about, class: kind }, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll" }, found);
}

export function amount(value) {
  return value === undefined || value === null ? "" : String(Math.round(value * 100) / 100);
}

// A name of at most so many characters, cut in the middle: names of one family differ at their ends.
export function short(name, most = 36) {
  return name.length <= most ? name : `${name.slice(0, most >> 1)}…${name.slice(1 - (most >> 1))}`;
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
