// The map: blocks of racks of nodes of GPUs on a canvas. A node is a row of cells, one for each GPU. Only racks in which
// something changed are drawn again.

const HUES = [212, 24, 140, 280, 180, 320, 60, 250, 100, 200, 160, 300];
const PAINTS = ["text", "soft", "free", "hidden", "bad", "held", "accent", "good", "card"];
const HEAD = 20; // height of a block's name

export class RackMap {
  // onOpen(node, owner): a node is opened, or the GPU of an owner. onZoom(path): a domain is chosen.
  constructor(canvas, { onChoose, onOpen, onZoom }) {
    Object.assign(this, { canvas, onChoose, onOpen, onZoom });
    this.nodes = new Map(); // by name
    this.levels = []; // of the topology, widest first
    this.zoom = []; // the domain that is shown, as the path of its names; empty: all
    this.held = new Map(); // GPUs that reservations keep, by node
    this.racks = null; // what was laid out; null: again at the next drawing
    this.boxes = []; // its nodes, in order
    this.chosen = "";
    this.marked = new Set(); // nodes of what is asked for
    this.colourBy = "job";
    this.find = "";
    this.drawn = 0; // nodes in the last drawing
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.draw(true));
    new ResizeObserver(() => this.draw(true)).observe(canvas.parentElement);
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
  }

  update(nodes, all) {
    if (all) this.nodes = new Map();
    for (const node of nodes) {
      const before = this.nodes.get(node.n);
      if (!before || before.g !== node.g || before.p.join() !== node.p.join()) this.racks = null;
      this.nodes.set(node.n, node);
    }
    if (all) this.racks = null;
  }

  shown() {
    const inside = (node) => this.zoom.every((name, at) => path(node)[at] === name);
    return [...this.nodes.values()].filter(inside).sort((a, b) => byName(path(a).join("/"), path(b).join("/")) || byName(a.n, b.n));
  }

  // The domains inside the one that is shown, below the first level that has several: {path, nodes, free, gpus}.
  domains() {
    const nodes = this.shown();
    let depth = this.zoom.length;
    while (new Set(nodes.map((node) => path(node)[depth])).size === 1 && path(nodes[0])[depth] !== undefined) depth += 1;
    const inside = nodes.filter((node) => path(node)[depth] !== undefined);
    return grouped(inside, (node) => path(node).slice(0, depth + 1).join("/")).map(([name, members]) => ({ path: name.split("/"), nodes: members.length, free: sum(members, "f"), gpus: sum(members, "g") }));
  }

  layout(width) {
    const nodes = this.shown();
    const count = nodes.length;
    this.size = count <= 24 ? { cell: 18, gap: 2, line: 3, label: 118, title: 20, between: 18, font: 12 } : count <= 400 ? { cell: 8, gap: 1, line: 0, label: 0, title: 15, between: 12, font: 11 } : { cell: 4, gap: 0, line: 0, label: 0, title: 12, between: 5, font: 9 };
    const { between } = this.size;
    Object.assign(this, { racks: [], boxes: [], blocks: [] });
    let x = 0, y = 0, tallest = 0;
    for (const [, members] of grouped(nodes, (node) => path(node).slice(0, -1).join("/"))) {
      const block = this.block(members, width);
      if (x && x + block.w > width) { x = 0; y += tallest + between; tallest = 0; }
      for (const each of [block, ...block.racks, ...block.racks.flatMap((rack) => rack.boxes)]) { each.x += x; each.y += y; }
      this.blocks.push(block);
      this.racks.push(...block.racks);
      x += block.w + 2 * between;
      tallest = Math.max(tallest, block.h);
    }
    this.boxes = this.racks.flatMap((rack) => rack.boxes);
    this.height = y + tallest + 6;
  }

  // A block with its racks, as if it were the first one.
  block(nodes, width) {
    const { cell, gap, line, label, title, between } = this.size;
    const made = { path: path(nodes[0]).slice(0, -1), nodes, racks: [], x: 0, y: 0, w: Math.min(width, 230), h: 0 };
    let x = 0, y = HEAD;
    for (const [, members] of grouped(nodes, (node) => path(node).join("/"))) {
      const w = label + Math.max(...members.map((node) => node.g), 1) * (cell + gap);
      if (x && x + w > width) { x = 0; y = made.h + between; }
      const rack = { path: path(members[0]), x, y, w, h: title + members.length * (cell + gap + line), look: "" };
      rack.boxes = members.map((node, at) => ({ name: node.n, rack, x, y: y + title + at * (cell + gap + line), w }));
      made.racks.push(rack);
      made.w = Math.max(made.w, x + w);
      made.h = Math.max(made.h, y + rack.h);
      x += w + between;
    }
    return made;
  }

  // again: the size or the colours of the page changed. only: racks; the data of the others did not change.
  draw(again = false, only = null) {
    const width = this.canvas.parentElement.clientWidth - 6;
    if (width <= 0) return;
    const fresh = again || !this.racks;
    const style = getComputedStyle(document.documentElement);
    if (fresh || !this.paint) this.paint = Object.fromEntries(PAINTS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const pen = this.canvas.getContext("2d");
    if (fresh) this.begin(pen, width);
    if (fresh || !only) this.colours = this.assign();
    this.drawn = 0;
    for (const rack of (!fresh && only) || this.racks) {
      const looks = rack.boxes.map((box) => this.look(this.nodes.get(box.name)));
      const look = looks.map((each) => each.text).join("\n");
      if (rack.look === look) continue;
      rack.look = look;
      this.drawRack(pen, rack, looks);
      this.drawn += looks.length;
    }
  }

  begin(pen, width) {
    this.layout(width);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.paint.text;
    pen.font = "600 12px system-ui, sans-serif";
    for (const { path: names, nodes, x, y, w } of this.blocks) {
      pen.fillText(`${names.join(" · ")}  ${nodes.length} nodes, ${sum(nodes, "g")} GPUs`, x, y + 13, w);
    }
  }

  // What is drawn of a node: the parts of each GPU as [colour, share], and marks.
  look(node) {
    const owners = owned(node);
    let held = this.held.get(node.n) || 0;
    const cells = [];
    for (let gpu = 0; gpu < node.g; gpu++) {
      const own = owners.get(gpu) || [];
      const bad = node.u.includes(gpu);
      const kept = !own.length && !bad && held > 0;
      const shut = !own.length && !bad && Boolean(node.x) && !node.f; // the node takes no pods
      if (kept) held -= 1;
      cells.push({ bad: bad || shut, kept, parts: bad ? [[this.paint.bad, 1]] : shut ? [[this.paint.hidden, 1]] : kept ? [[this.paint.held, 1]] : own.map((each) => [this.fill(each, node), each.s || 1]) });
    }
    const mark = node.n === this.chosen ? this.paint.text : this.marked.has(node.n) ? this.paint.accent : "";
    const dim = this.dimmed(node);
    return { node, cells, mark, dim, text: `${cells.map((cell) => cell.parts.join()).join(";")} ${mark} ${dim} ${node.x}` };
  }

  drawRack(pen, rack, looks) {
    const { cell, gap, label, title, font } = this.size;
    pen.clearRect(rack.x - 3, rack.y, rack.w + 6, rack.h + 3);
    pen.fillStyle = this.paint.soft;
    pen.font = `${font}px system-ui, sans-serif`;
    pen.fillText(rack.path.at(-1) || "no rack", rack.x, rack.y + title - Math.round(font / 3), rack.w);
    rack.boxes.forEach((box, at) => {
      const { node, cells, mark, dim } = looks[at];
      if (label) {
        pen.fillStyle = node.x ? this.paint.bad : this.paint.text;
        pen.fillText(node.n, box.x, box.y + cell - 4, label - 8);
      }
      pen.globalAlpha = dim ? 0.2 : 1;
      cells.forEach((each, gpu) => {
        const x = box.x + label + gpu * (cell + gap), size = cell < 5 ? cell - 0.5 : cell;
        pen.fillStyle = this.paint.free;
        pen.fillRect(x, box.y, size, size);
        let full = 0;
        for (const [colour, share] of each.parts) {
          pen.fillStyle = colour;
          pen.fillRect(x, box.y + size * (1 - Math.min(1, full + share)), size, size * Math.min(share, 1 - full));
          full += share;
        }
        if (each.bad && cell > 5) cross(pen, x, box.y, size, this.paint.card);
        if (each.kept && cell > 5) stripes(pen, x, box.y, size, this.paint.card);
      });
      pen.globalAlpha = 1;
      if (node.x && !label) { pen.fillStyle = this.paint.bad; pen.fillRect(box.x - 2, box.y, 1.5, cell); }
      if (mark) {
        pen.strokeStyle = mark;
        pen.lineWidth = cell < 5 ? 1 : 2;
        pen.strokeRect(box.x + label - 1.5, box.y - 1.5, node.g * (cell + gap) + 2, cell + 3);
      }
    });
  }

  fill(owner, node) {
    if (this.colourBy === "state") return node.x ? this.paint.hidden : this.paint.good;
    if (owner.o === "-") return this.paint.hidden;
    return this.colours.get(this.colourBy === "queue" ? owner.q : owner.o) || this.paint.hidden;
  }

  // The same colour for the same name: the largest get distinct ones, the rest one that their name gives.
  assign() {
    const light = this.dark.matches ? 62 : 48;
    const found = new Map();
    [...this.sums().keys()].forEach((name, at) => {
      const hue = at < HUES.length ? HUES[at] : 40 + (hash(name) % 280);
      found.set(name, `hsl(${hue} ${at < HUES.length ? 65 : 40}% ${light + (at % 3) * 4}%)`);
    });
    return found;
  }

  // GPUs by job or queue, the most first.
  sums() {
    const found = new Map();
    for (const node of this.nodes.values()) {
      for (const each of node.h) {
        if (each.o === "-") continue;
        const name = this.colourBy === "queue" ? each.q : each.o;
        found.set(name, (found.get(name) || 0) + each.i.length * (each.s || 1));
      }
    }
    return new Map([...found.entries()].sort((a, b) => b[1] - a[1] || byName(a[0], b[0])));
  }

  dimmed(node) {
    const find = this.find.toLowerCase();
    if (!find) return false;
    const words = [node.n, ...node.p, node.m, node.x, ...node.h.map((each) => `${each.o} ${each.q}`)];
    return !words.some((word) => word.toLowerCase().includes(find));
  }

  // The node, GPU and owners at a place of the canvas.
  at({ offsetX: x, offsetY: y }) {
    const { cell, gap, label } = this.size;
    const box = this.boxes.find((each) => x >= each.x && x <= each.x + each.w && y >= each.y - 1 && y <= each.y + cell + 1);
    if (!box) return null;
    const node = this.nodes.get(box.name);
    const gpu = x < box.x + label ? -1 : Math.floor((x - box.x - label) / (cell + gap));
    return { node, gpu, owners: owned(node).get(gpu) || [] };
  }

  hover(event) {
    const found = this.racks && this.at(event);
    const title = found ? `${found.node.n}${found.gpu < 0 ? "" : ` GPU ${found.gpu}: ${found.owners.map((each) => each.o).join(", ") || "free"}`}` : "";
    if (this.canvas.title !== title) this.canvas.title = title;
  }

  click(event) {
    const found = this.at(event);
    if (found) { this.choose(found.node.n); this.onOpen(found.node, found.owners[0]); return; }
    const { offsetX: x, offsetY: y } = event;
    const rack = this.racks.find((each) => x >= each.x && x <= each.x + each.w && y >= each.y && y < each.y + this.size.title);
    const block = this.blocks.find((each) => x >= each.x && x <= each.x + each.w && y >= each.y && y < each.y + HEAD);
    if (rack || block) this.onZoom((rack || block).path);
  }

  key(event) {
    const at = this.boxes.findIndex((box) => box.name === this.chosen);
    const here = this.boxes[at];
    let to = -1;
    if (event.key === "Enter" && here) { this.onOpen(this.nodes.get(here.name)); event.preventDefault(); return; }
    if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.boxes.length - 1;
    else if (event.key === "ArrowDown") to = at < 0 ? 0 : Math.min(this.boxes.length - 1, at + 1);
    else if (event.key === "ArrowUp") to = Math.max(0, at - 1);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const rack = here ? this.racks.indexOf(here.rack) + (event.key === "ArrowRight" ? 1 : -1) : 0;
      to = this.boxes.indexOf(this.racks[Math.max(0, Math.min(this.racks.length - 1, rack))]?.boxes[0]);
    } else return;
    event.preventDefault();
    if (this.boxes[to]) { this.choose(this.boxes[to].name); this.onChoose(this.nodes.get(this.boxes[to].name)); }
  }

  choose(name) {
    const [before, box] = [this.chosen, name].map((one) => this.boxes.find((each) => each.name === one));
    this.chosen = name;
    this.draw(false, [before, box].filter(Boolean).map((each) => each.rack));
    const frame = this.canvas.parentElement; // a large map scrolls by itself
    if (!box) return;
    if (box.rack.y < frame.scrollTop) frame.scrollTop = box.rack.y;
    else if (box.y + 28 > frame.scrollTop + frame.clientHeight) frame.scrollTop = box.y + 28 - frame.clientHeight;
  }
}

function path(node) {
  return node.p.filter(Boolean);
}

function sum(nodes, key) {
  return Math.round(nodes.reduce((found, node) => found + node[key], 0) * 100) / 100;
}

function grouped(nodes, key) {
  const found = new Map();
  for (const node of nodes) {
    const name = key(node);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(node);
  }
  return [...found.entries()];
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

export function byName(a, b) {
  return COLLATOR.compare(a, b);
}

// The owners of each GPU; a shared one has several.
export function owned(node) {
  const owners = new Map();
  for (const each of node.h) for (const gpu of each.i) owners.set(gpu, [...(owners.get(gpu) || []), each]);
  return owners;
}

function hash(text) {
  let sum = 7;
  for (const sign of text) sum = (sum * 31 + sign.codePointAt(0)) >>> 0;
  return sum;
}

function cross(pen, x, y, size, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x + 2, y + 2); pen.lineTo(x + size - 2, y + size - 2);
  pen.moveTo(x + size - 2, y + 2); pen.lineTo(x + 2, y + size - 2);
  pen.stroke();
}

function stripes(pen, x, y, size, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = 3; at < size; at += 4) { pen.moveTo(x + at, y); pen.lineTo(x, y + at); }
  pen.stroke();
}
