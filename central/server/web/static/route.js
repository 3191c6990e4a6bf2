// The address of what is shown: #/VIEW/NAME...?PARAMETERS, to be pasted and reloaded. `at` is the moment of the slider.

export const route = { view: "jobs", names: [], query: new URLSearchParams() };

export function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...names] = path.split("/").map(decodeURIComponent);
  Object.assign(route, { view: view || "jobs", names, query: new URLSearchParams(query || "") });
}

// An address; the moment of the slider stays.
export function to(view, names = [], parameters = {}) {
  const query = new URLSearchParams(route.query.has("at") && !("at" in parameters) ? { at: route.query.get("at") } : {});
  for (const [key, value] of Object.entries(parameters)) if (value !== undefined && value !== null && value !== "") query.set(key, value);
  const text = query.toString();
  return `#/${[view, ...names].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// The same view with other parameters.
export function changed(parameters) {
  return to(route.view, route.names, { ...Object.fromEntries(route.query), ...parameters });
}

export function replace(parameters) {
  history.replaceState(null, "", changed(parameters));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
