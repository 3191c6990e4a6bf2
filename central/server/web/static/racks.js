// The map: racks of nodes of GPUs on a canvas. A node is a row of cells, one for each GPU.

const HUES = [212, 24, 140, 280, 180, 320, 60, 250, 100, 200, 160, 300];

export class RackMap {
  constructor(canvas, onChoose) {
    this.canvas = canvas;
    this.onChoose = onChoose;
    this.nodes = new Map(); // by name
    this.levels = []; // of the topology, widest first
    this.held = new Map(); // GPUs that reservations keep, by node
    this.boxes = []; // what was drawn: {node, x, y, w, h, rack}
    this.chosen = "";
    this.marked = new Set(); // nodes of the gang that is shown
    this.colourBy = "job";
    this.find = "";
    this.colours = new Map();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  racks() {
    const found = new Map();
    for (const name of [...this.nodes.keys()].sort(byName)) {
      const node = this.nodes.get(name);
      const rack = node.p.filter(Boolean).join(" · ") || "no rack";
      if (!found.has(rack)) found.set(rack, []);
      found.get(rack).push(node);
    }
    return [...found.entries()].sort((a, b) => byName(a[0], b[0]));
  }

  // Cells as large as the number of nodes allows.
  scale() {
    const count = this.nodes.size;
    if (count <= 24) return { cell: 18, gap: 2, names: true, title: 20, between: 18 };
    if (count <= 400) return { cell: 8, gap: 1, names: false, title: 15, between: 12 };
    return { cell: 4, gap: 0, names: false, title: 0, between: 5 };
  }

  draw() {
    const { cell, gap, names, title, between } = this.scale();
    const width = this.canvas.parentElement.clientWidth - 6;
    if (width <= 0) return;
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    this.paint = Object.fromEntries(["text", "soft", "free", "hidden", "bad", "held", "accent", "good", "card"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const label = names ? 118 : 0;
    const racks = this.racks();
    this.boxes = [];
    let x = 0, y = 0, tallest = 0;
    for (const [rack, nodes] of racks) {
      const most = Math.max(...nodes.map((node) => node.g), 1);
      const w = Math.max(label + most * (cell + gap), title ? 84 : 0);
      const h = title + nodes.length * (cell + gap + (names ? 3 : 0));
      if (x && x + w > width) { x = 0; y += tallest + between; tallest = 0; }
      nodes.forEach((node, at) => this.boxes.push({ node, rack, x: x, y: y + title + at * (cell + gap + (names ? 3 : 0)), w, h: cell, label, title: at ? "" : rack, top: y }));
      x += w + between;
      tallest = Math.max(tallest, h);
    }
    const height = y + tallest + 6;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.colours = this.assign();
    for (const box of this.boxes) this.drawNode(pen, box, cell, gap, names);
  }

  drawNode(pen, box, cell, gap, names) {
    const { node } = box;
    if (box.title && this.scale().title) {
      pen.fillStyle = this.paint.soft;
      pen.font = names ? "12px system-ui, sans-serif" : "10px system-ui, sans-serif";
      pen.fillText(names ? box.title : box.title.split(" · ").pop(), box.x, box.top + this.scale().title - 6, box.w);
    }
    if (names) {
      pen.fillStyle = node.x ? this.paint.bad : this.paint.text;
      pen.font = "12px system-ui, sans-serif";
      pen.fillText(node.n, box.x, box.y + cell - 4, box.label - 8);
    }
    pen.globalAlpha = this.dimmed(node) ? 0.2 : 1;
    const owners = owned(node);
    let held = this.held.get(node.n) || 0;
    const bad = new Set(node.u);
    for (let gpu = 0; gpu < node.g; gpu++) {
      const x = box.x + box.label + gpu * (cell + gap), y = box.y, size = cell < 5 ? cell - 0.5 : cell;
      const owner = owners.get(gpu);
      const kept = owner === undefined && !bad.has(gpu) && held > 0;
      if (kept) held -= 1;
      pen.fillStyle = this.fill(owner, bad.has(gpu), kept, node);
      pen.fillRect(x, y, size, size);
      if (bad.has(gpu) && cell > 5) cross(pen, x, y, size, this.paint.card);
      if (kept && cell > 5) stripes(pen, x, y, size, this.paint.card);
    }
    pen.globalAlpha = 1;
    if (node.x && !names) { pen.fillStyle = this.paint.bad; pen.fillRect(box.x, box.y, 1.5, cell); }
    if (node.n === this.chosen || this.marked.has(node.n)) {
      pen.strokeStyle = node.n === this.chosen ? this.paint.text : this.paint.accent;
      pen.lineWidth = cell < 5 ? 1 : 2;
      pen.strokeRect(box.x + box.label - 1.5, box.y - 1.5, node.g * (cell + gap) + 2, cell + 3);
    }
  }

  fill(owner, bad, kept, node) {
    if (bad) return this.paint.bad;
    if (kept) return this.paint.held;
    if (owner === undefined) return this.paint.free;
    if (this.colourBy === "state") return node.x ? this.paint.hidden : this.paint.good;
    if (owner.o === "-") return this.paint.hidden;
    return this.colours.get(this.colourBy === "queue" ? owner.q : owner.o) || this.paint.hidden;
  }

  // The same colour for the same name: the largest get distinct ones, the rest one that their name gives.
  assign() {
    const sums = this.sums();
    const light = this.dark.matches ? 62 : 48;
    const found = new Map();
    [...sums.keys()].forEach((name, at) => {
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
        found.set(name, (found.get(name) || 0) + each.i.length);
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

  click(event) {
    const { cell } = this.scale();
    const box = this.boxes.find((each) => event.offsetX >= each.x && event.offsetX <= each.x + each.w && event.offsetY >= each.y - 1 && event.offsetY <= each.y + cell + 1);
    if (box) { this.choose(box.node.n); this.onChoose(box.node, true); }
  }

  key(event) {
    const at = this.boxes.findIndex((box) => box.node.n === this.chosen);
    const here = this.boxes[at];
    let to = -1;
    if (event.key === "Enter" && here) { this.onChoose(here.node, true); event.preventDefault(); return; }
    if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.boxes.length - 1;
    else if (event.key === "ArrowDown") to = at < 0 ? 0 : Math.min(this.boxes.length - 1, at + 1);
    else if (event.key === "ArrowUp") to = Math.max(0, at - 1);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const racks = [...new Set(this.boxes.map((box) => box.rack))];
      const rack = racks.indexOf(here ? here.rack : racks[0]) + (here ? (event.key === "ArrowRight" ? 1 : -1) : 0);
      to = this.boxes.findIndex((box) => box.rack === racks[Math.max(0, Math.min(racks.length - 1, rack))]);
    } else return;
    event.preventDefault();
    if (this.boxes[to]) { this.choose(this.boxes[to].node.n); this.onChoose(this.boxes[to].node, false); }
  }

  choose(name) {
    this.chosen = name;
    this.draw();
    this.reveal(this.boxes.find((box) => box.node.n === name));
  }

  // A large map scrolls by itself.
  reveal(box) {
    const frame = this.canvas.parentElement;
    if (!box) return;
    if (box.top < frame.scrollTop) frame.scrollTop = box.top;
    else if (box.y + box.h + 8 > frame.scrollTop + frame.clientHeight) frame.scrollTop = box.y + box.h + 8 - frame.clientHeight;
  }
}

export function byName(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

export function owned(node) {
  const owners = new Map();
  for (const each of node.h) for (const gpu of each.i) owners.set(gpu, each);
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
