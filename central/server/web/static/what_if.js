// What-if: a form for changes of the present cluster, and what they would change. A process of the scheduler simulates.

import { post } from "./api.js";
import { amount, clock, element, jobLink, link, show, span, table } from "./dom.js";
import { byName } from "./racks.js";

// Of each kind of change: its fields as [name, label, list of suggestions, type], and the text that is sent.
const KINDS = {
  cordon: { label: "cordon", fields: [["place", "node, or a domain such as rack=r1", "what-if-places"]] },
  drain: { label: "drain", fields: [["place", "node, or a domain such as rack=r1", "what-if-places"]] },
  without: { label: "end a job", fields: [["name", "namespace/name", "what-if-jobs"]] },
  queue: { label: "change a queue", fields: [["queue", "queue", "what-if-queues"], ["field", "field", ["capability", "deserved", "guarantee", "weight", "priority"]], ["amount", "number", null, "number"]] },
};

export class WhatIf {
  // map: for suggestions and marks. queues: the names of queues.
  constructor(map) {
    this.map = map;
    this.queues = [];
    this.changes = document.getElementById("what-if-changes");
    this.form = document.getElementById("what-if-form");
    this.asking = null;
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    document.getElementById("what-if-add").addEventListener("click", () => this.add("cordon").querySelector("input").focus());
    document.getElementById("what-if-cancel").addEventListener("click", () => this.asking?.abort());
    this.form.addEventListener("focusin", () => this.suggest());
    this.add("cordon");
  }

  // A line of the form. values: of its fields.
  add(kind, ...values) {
    const choice = element("select", { "aria-label": "change" }, ...Object.entries(KINDS).map(([name, each]) => element("option", { value: name }, each.label)));
    choice.value = kind;
    const fields = element("span", { class: "fields" });
    const line = element("div", { class: "change" }, choice, fields, element("button", { type: "button", title: "remove this change", "aria-label": "remove this change", onclick: () => line.remove() }, "×"));
    const fill = (given) => fields.replaceChildren(...KINDS[choice.value].fields.map((field, at) => input(field, given[at])));
    choice.addEventListener("change", () => fill([]));
    fill(values);
    this.changes.append(line);
    return line;
  }

  // One change, instead of all that the form has.
  begin(kind, ...values) {
    this.changes.replaceChildren();
    const line = this.add(kind, ...values);
    document.getElementById("what-if").hidden = false;
    line.querySelector("input").focus();
  }

  suggest() {
    const places = new Set();
    const jobs = new Set();
    const levels = this.map.levels.map((level) => level.split("/").pop());
    for (const node of this.map.nodes.values()) {
      node.p.forEach((name, at) => { if (name && levels[at]) places.add(`${levels[at]}=${name}`); });
      for (const each of node.h) if (each.o !== "-") jobs.add(each.o);
    }
    const names = [...[...places].sort(byName), ...[...this.map.nodes.keys()].sort(byName)];
    for (const [id, found] of [["what-if-places", names], ["what-if-jobs", [...jobs].sort(byName)], ["what-if-queues", this.queues]]) {
      show(id, ...found.slice(0, 500).map((name) => element("option", { value: name })));
    }
  }

  change() {
    const found = { cordon: [], drain: [], without: [], queue: [], submit: document.getElementById("what-if-submit").value, until: document.getElementById("what-if-until").value };
    for (const line of this.changes.children) {
      const kind = line.querySelector("select").value;
      const values = [...line.querySelectorAll(".fields input, .fields select")].map((each) => each.value.trim());
      if (!values[0]) continue;
      found[kind].push(kind === "queue" ? `${values[0]}:${values[1]}=${values[2]}` : values[0]);
    }
    return found;
  }

  async ask() {
    if (this.asking) return;
    const began = Date.now();
    const state = document.getElementById("what-if-state");
    const tick = () => { state.textContent = `simulating, ${span((Date.now() - began) / 1000)} …`; };
    const timer = setInterval(tick, 1000);
    this.asking = new AbortController();
    state.className = "";
    tick();
    document.getElementById("what-if-cancel").hidden = false;
    try {
      const told = await post("/api/what-if", this.change(), this.asking.signal);
      show("what-if-result", ...this.told(told));
      state.textContent = `compared as of ${clock(Date.now() / 1000)}`;
    } catch (error) {
      state.className = error.name === "AbortError" ? "" : "bad";
      state.textContent = error.name === "AbortError" ? "cancelled" : error.message;
      if (error.name !== "AbortError") show("what-if-result");
    } finally {
      clearInterval(timer);
      this.asking = null;
      document.getElementById("what-if-cancel").hidden = true;
    }
  }

  told(answer) {
    const totals = answer.totals.map((row) => element("tr", { class: row.now === row.then ? "" : "differs" }, element("td", {}, row.name), element("td", { class: "number" }, amount(row.now)), element("td", { class: "number" }, amount(row.then)), element("td", { class: "number" }, difference(row.then - row.now))));
    const gangs = answer.gangs.map((row) => element("tr", {},
      element("td", { class: "name" }, jobLink(row.namespace, row.name), row.nodes.length ? link(" on the map", "map", [], { mark: row.nodes.join() }) : ""),
      element("td", { class: "reason", "data-label": "now" }, row.now), element("td", { class: "reason", "data-label": "then" }, row.then)));
    const found = [table([["the next " + span(answer.horizon_s)], ["as it is", "number"], ["with the change", "number"], ["", "number"]], totals, "Totals")];
    if (gangs.length) found.push(table([["gang"], ["as it is"], ["with the change"]], gangs, "Gangs that differ"));
    else found.push(element("p", {}, "No gang starts, waits or is evicted differently."));
    if (answer.more) found.push(element("p", { class: "soft" }, `and ${answer.more} more gangs`));
    for (const note of answer.notes) found.push(element("p", { class: "soft" }, note));
    return found;
  }
}

function input([name, label, list, type], value = "") {
  if (Array.isArray(list)) {
    const made = element("select", { name, "aria-label": label }, ...list.map((each) => element("option", { value: each }, each)));
    if (value) made.value = value;
    return made;
  }
  return element("input", { name, value, placeholder: label, "aria-label": label, list: list || undefined, type: type || "text", min: type === "number" ? 0 : undefined, autocomplete: "off", spellcheck: "false" });
}

function difference(value) {
  const rounded = Math.round(value * 100) / 100;
  return rounded ? `${rounded > 0 ? "+" : "−"}${Math.abs(rounded)}` : "";
}
