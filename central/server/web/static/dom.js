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

export function show(where, ...children) {
  document.getElementById(where).replaceChildren(...children);
}

export function table(heads, rows, about) {
  const head = element("tr", {}, ...heads.map(([text, kind]) => element("th", { class: kind || "", scope: "col" }, text)));
  const found = element("table", { "aria-label": about }, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll" }, found);
}

export function amount(value) {
  return value === undefined || value === null ? "" : String(Math.round(value * 100) / 100);
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d`;
}
