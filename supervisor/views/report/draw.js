/* Lanes and curves from the block "data". Makes no markup from text: only textContent and attributes. */
const NS = "http://www.w3.org/2000/svg";
const EMPTY16 = 0xffff, EMPTY8 = 0xff;
const KINDS = { productive: "training", degraded: "degraded", load: "loading", verify: "verifying",
  backoff: "waiting", check: "checking" };
const $ = (id) => document.getElementById(id);
const make = (name, parent, text) => {
  const el = document.createElement(name);
  if (text !== undefined) el.textContent = text;
  if (parent) parent.append(el);
  return el;
};
const draw = (name, parent, attributes, text) => {
  const el = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes || {})) el.setAttribute(key, value);
  if (text !== undefined) el.textContent = text;
  if (parent) parent.append(el);
  return el;
};
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const words16 = (text) => {
  const raw = bytes(text), view = new DataView(raw.buffer), out = new Uint16Array(raw.length / 2);
  for (let i = 0; i < out.length; i++) out[i] = view.getUint16(2 * i, true);
  return out;
};
let data, end, shown, axis = "time", steps = null;

function load() {
  data = JSON.parse($("data").textContent);
  end = Math.max(1, data.end_s - data.begin_s);
  const curves = new Map(data.gpus.map((g) => [g.uuid, g]));
  data.lanes = data.placed.map(([index, role, uuid]) => {
    const g = curves.get(uuid);
    return { index, role, scale: g ? g.scale_mib : 1, total: g && g.total_mib,
      low: g && words16(g.low), high: g && words16(g.high),
      utilLow: g && bytes(g.util_low), utilHigh: g && bytes(g.util_high) };
  });
}

/* ---- time ---- */
const pad = (n) => String(n).padStart(2, "0");
const at = (s) => new Date((data.begin_s + s + data.zone_s) * 1000);
const clock = (s, fine) => { const d = at(s);
  return pad(d.getUTCHours()) + ":" + pad(d.getUTCMinutes()) + (fine ? ":" + pad(d.getUTCSeconds()) : ""); };
const day = (s) => at(s).toISOString().slice(0, 10);
const long = (s) => { s = Math.round(s);
  return s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + "m " + pad(s % 60) + "s"
    : Math.floor(s / 3600) + "h " + pad(Math.floor(s % 3600 / 60)) + "m"; };
const PACES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
  604800];
function ticks(from, to, width) {
  const pace = PACES.find((p) => (to - from) / p * 78 <= width) || 2592000;
  const shift = (data.begin_s + data.zone_s) % pace, out = [];
  for (let t = Math.ceil((from + shift) / pace) * pace - shift; t <= to; t += pace) out.push(t);
  return { out, pace };
}
function round(from, to, count) {
  const raw = (to - from) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const pace = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw), out = [];
  for (let v = Math.ceil(from / pace) * pace; v <= to + pace * 1e-9; v += pace) out.push(Number(v.toPrecision(12)));
  return out;
}
const number = (v) => Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2)
  : String(Number(v.toPrecision(5)));
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/* ---- lanes ---- */
function bands(svg, width, height, marks) {
  const x = (t) => (t - shown[0]) / (shown[1] - shown[0]) * width;
  for (const [kind, from, to, attempt] of data.spans) {
    if (to < shown[0] || from > shown[1]) continue;
    const left = Math.max(0, x(from)), right = Math.min(width, x(to));
    const title = (attempt ? "attempt " + attempt + ", " : "") + (KINDS[kind] || kind) + ", " + long(to - from);
    const box = draw("rect", svg, { class: "band k-" + kind, x: left, y: 0, rx: 2, height,
      width: Math.max(1, right - left - 0.5) });
    draw("title", box, {}, title);
    if (attempt) box.dataset.attempt = attempt;
    if (attempt && kind === "productive" && right - left > 26) {
      draw("text", svg, { class: "number", x: left + 5, y: height / 2 + 4 }, String(attempt));
    }
  }
  for (const [t, kind, text, attempt] of marks) {
    if (t < shown[0] || t > shown[1]) continue;
    const cx = x(t), r = height / 2 - 1, cy = height / 2;
    const mark = draw("path", svg, { class: "mark", tabindex: 0, role: "button",
      "aria-label": kind + ", attempt " + attempt, d: `M${cx - r} ${cy}L${cx} ${cy - r}L${cx + r} ${cy}L${cx} ${cy + r}Z` });
    draw("title", mark, {}, kind + (attempt ? " in attempt " + attempt : "") + ": " + text);
    if (attempt) mark.dataset.attempt = attempt;
  }
}
function canvas(el, width, height) {
  const ratio = window.devicePixelRatio || 1;
  el.width = Math.round(width * ratio); el.height = Math.round(height * ratio);
  el.style.height = height + "px";
  const g = el.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0); g.clearRect(0, 0, width, height);
  return g;
}
/* For each column the least and the most of its buckets, and which is its first; a wide one fills several columns. */
function columns(low, high, empty, width) {
  const out = new Array(width), per = (shown[1] - shown[0]) / width / data.bucket_s, first = shown[0] / data.bucket_s;
  for (let px = 0; px < width; px++) {
    const a = Math.floor(first + px * per), b = Math.max(a + 1, Math.floor(first + (px + 1) * per));
    let least = Infinity, most = -Infinity;
    for (let i = Math.max(0, a); i < b && i < low.length; i++) {
      if (low[i] === empty) continue;
      if (low[i] < least) least = low[i];
      if (high[i] > most) most = high[i];
    }
    out[px] = most < 0 ? null : [least, most, a];
  }
  return out;
}
function curves(lane, el, width, height) {
  const g = canvas(el, width, height);
  g.strokeStyle = color("line");
  g.beginPath(); g.moveTo(0, height - 0.5); g.lineTo(width, height - 0.5); g.stroke();
  if (!lane.low) return;
  const y = (share) => height - 1 - share * (height - 3), wide = Math.max(1, Math.floor(width));
  const memory = columns(lane.low, lane.high, EMPTY16, wide);
  g.fillStyle = color("mem-fill");
  memory.forEach((c, px) => { if (c) g.fillRect(px, y(c[1] / 65534), 1, height - y(c[1] / 65534)); });
  const util = columns(lane.utilLow, lane.utilHigh, EMPTY8, wide);
  g.fillStyle = color("util"); g.globalAlpha = 0.45;
  util.forEach((c, px) => { if (c) g.fillRect(px, y(c[1] / 100), 1, y(c[0] / 100) - y(c[1] / 100)); });
  g.globalAlpha = 1;
  trace(g, util.map((c) => c && [(c[0] + c[1]) / 2, (c[0] + c[1]) / 2]), 100, y, color("util"), 1);
  trace(g, memory, 65534, y, color("mem"), 1.5);
}
function trace(g, cells, scale, y, ink, wide) {
  g.fillStyle = g.strokeStyle = ink; g.lineWidth = wide; g.lineJoin = "round";
  g.globalAlpha = 0.15;
  cells.forEach((c, px) => { if (c && c[1] > c[0]) g.fillRect(px, y(c[1] / scale), 1, y(c[0] / scale) - y(c[1] / scale)); });
  g.globalAlpha = 1;
  g.beginPath();
  let before = null, bucket = null;
  cells.forEach((c, px) => {
    if (!c) { before = bucket = null; return; }
    const top = y(c[1] / scale), bottom = y(c[0] / scale);
    if (before === null) g.moveTo(px, before = top); else g.lineTo(px + 0.5, top);
    const known = bucket === c[2];
    bucket = c[2];
    if (bottom - top > 0.5 && !known) { g.lineTo(px + 0.5, bottom); g.lineTo(px + 0.5, top); }
    before = top;
  });
  g.stroke();
}
function timeAxis(svg, width) {
  const { out, pace } = ticks(shown[0], shown[1], width);
  let last = "";
  for (const t of out) {
    const x = (t - shown[0]) / (shown[1] - shown[0]) * width, today = day(t);
    if (x > width - 16 || x < 14) continue;
    const text = pace >= 86400 ? today.slice(5) : today !== last ? today.slice(5) + " " + clock(t) : clock(t, pace < 60);
    last = today;
    draw("text", svg, { class: "tick", x: Math.max(x, 34), y: 12, "text-anchor": "middle" }, text);
    draw("path", svg, { class: "rule", d: `M${x} 15V20` });
  }
}
function lane(box, title, small, key) {
  const row = make("div", box); row.className = "lane"; row.dataset.gpu = key;
  const name = make("b", row, title);
  if (small) make("small", name, small);
  const plot = make("div", row); plot.className = "plot";
  return plot;
}
let plots = [];
function build() {
  const box = $("lane-box");
  box.replaceChildren(); plots = [];
  const top = lane(box, "", "", "axis");
  plots.push({ svg: draw("svg", top, { height: 20 }), axis: true });
  const run = lane(box, "run", "", "run");
  plots.push({ svg: draw("svg", run, { height: 20 }), height: 20, marks: data.marks });
  for (const each of data.lanes) {
    const most = each.low ? (each.total || each.scale) / 1024 : 0;
    const plot = lane(box, "GPU " + (each.index ?? "?"), each.role + (most ? ", " + most.toFixed(0) + " GiB" : ""),
      String(each.index));
    const svg = draw("svg", plot, { height: 14 }), el = make("canvas", plot);
    el.setAttribute("aria-hidden", "true");
    plots.push({ svg, canvas: el, lane: each, height: 14, marks: data.marks.filter((m) => m[4].includes(each.index)) });
  }
  const legend = $("lane-legend");
  legend.replaceChildren();
  const kinds = [...new Set(data.spans.map((s) => s[0]))].map((k) => [k, KINDS[k] || k]);
  for (const [key, text] of [...kinds, ["mark", "failure"], ["mem", "memory"], ["util", "utilisation"]]) {
    const item = make("span", legend);
    make("i", item).className = "k-" + key;
    item.append(text);
  }
  paint();
}
function paint() {
  const narrow = window.innerWidth <= 640;
  for (const p of plots) {
    const width = Math.floor(p.svg.parentElement.clientWidth);
    p.svg.replaceChildren();
    p.svg.setAttribute("viewBox", `0 0 ${width} ${p.axis ? 20 : p.height}`);
    if (p.axis) timeAxis(p.svg, width); else bands(p.svg, width, p.height, p.marks);
    if (p.canvas) curves(p.lane, p.canvas, width, narrow ? 34 : 44);
  }
  $("window").textContent = day(shown[0]) + " " + clock(shown[0]) + " to " + clock(shown[1]) + " (" +
    long(shown[1] - shown[0]) + ")";
  paintCurves();
}

/* ---- loss and rate ---- */
function paintCurves() {
  const box = $("curve-box"), told = [[2, "loss"], [3, "rate"]].filter(([at]) => data.points.some((p) => p[at] !== null));
  document.getElementById("curves").hidden = !told.length;
  box.replaceChildren();
  for (const [at, name] of told) {
    const holder = make("div", box); holder.className = "curve";
    make("h3", holder, name);
    const plot = make("div", holder); plot.className = "plot"; plot.dataset.curve = name;
    const svg = draw("svg", plot, { height: 170 });
    curve(svg, plot.clientWidth, 170, at);
  }
}
function curve(svg, width, height, at) {
  const of = axis === "step" ? 1 : 0, left = 54, bottom = 20;
  const points = data.points.filter((p) => p[at] !== null);
  const all = points.map((p) => p[of]);
  let range = axis === "step" ? steps || [least(all), most(all)] : shown;
  if (range[1] <= range[0]) range = [range[0], range[0] + 1];
  const seen = points.filter((p) => p[of] >= range[0] && p[of] <= range[1]);
  let low = least(seen.map((p) => p[at])), high = most(seen.map((p) => p[at]));
  if (!seen.length) return;
  if (high <= low) { high = low + Math.abs(low || 1) * 0.1; low -= Math.abs(low || 1) * 0.1; }
  const x = (v) => left + (v - range[0]) / (range[1] - range[0]) * (width - left - 4);
  const y = (v) => 6 + (1 - (v - low) / (high - low)) * (height - bottom - 12);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const v of round(low, high, 4)) {
    draw("path", svg, { class: "rule", d: `M${left} ${y(v)}H${width}` });
    draw("text", svg, { class: "tick", x: left - 6, y: y(v) + 4, "text-anchor": "end" }, number(v));
  }
  const times = axis === "time" && ticks(range[0], range[1], width - left);
  const marks = times ? times.out : round(range[0], range[1], Math.max(2, width / 110));
  const label = (v) => !times ? String(v) : times.pace >= 86400 ? day(v).slice(5) : clock(v, times.pace < 60);
  for (const v of marks) {
    const px = x(v);
    if (px < left + 8 || px > width - 20) continue;
    draw("text", svg, { class: "tick", x: px, y: height - 4, "text-anchor": "middle" }, label(v));
  }
  let begin = null, last = null;
  for (const p of [...seen, null]) {
    if (p && p[4]) { if (begin === null) begin = p; last = p; continue; }
    if (begin !== null) {
      const a = x(Math.min(begin[of], last[of])), b = x(Math.max(begin[of], last[of]));
      const box = draw("rect", svg, { class: "shade", x: a, y: 4, width: Math.max(2, b - a), height: height - bottom - 6 });
      draw("title", box, {}, "rolled back: steps " + begin[1] + " to " + last[1] + " of attempt " + last[5]);
    }
    begin = null;
  }
  for (const lost of [1, 0]) {
    let path = "", before = null, run = 0;
    for (const p of seen) {
      if (p[4] !== lost) { if (p[4] !== before) before = null; continue; }
      const joined = before === p[4] && (lost || axis === "step" || p[5] === run);
      path += (joined && (p[5] === run || !lost) ? "L" : "M") + x(p[of]).toFixed(1) + " " + y(p[at]).toFixed(1) + "h0";
      before = p[4]; run = p[5];
    }
    draw("path", svg, { d: path, fill: "none", "stroke-width": lost ? 1.2 : 1.5, "stroke-linejoin": "round",
      "stroke-linecap": "round", class: lost ? "gone" : "kept", stroke: lost ? "var(--gone)" : "var(--mem)" });
  }
}
const least = (all) => all.reduce((a, b) => Math.min(a, b), Infinity);
const most = (all) => all.reduce((a, b) => Math.max(a, b), -Infinity);
