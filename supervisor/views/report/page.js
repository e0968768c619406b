/* What a reader does with the page that `draw.js` has drawn: zoom, open, print; a live page asks for a newer one. */
/* ---- zoom ---- */
function show(from, to) {
  const least = Math.max(5, 4 * data.bucket_s), span = Math.min(end, Math.max(least, to - from));
  from = Math.max(0, Math.min(end - span, from));
  shown = [from, from + span];
  paint();
}
function move(what) {
  const [from, to] = shown, span = to - from, middle = (from + to) / 2;
  if (what === "in") show(middle - span / 4, middle + span / 4);
  if (what === "out") show(middle - span, middle + span);
  if (what === "left") show(from - span / 2, to - span / 2);
  if (what === "right") show(from + span / 2, to + span / 2);
  if (what === "all") show(0, end);
}
function open(number) {
  const el = $("attempt-" + number);
  if (!el) return;
  document.querySelectorAll("details.lit").forEach((d) => d.classList.remove("lit"));
  el.open = true; el.classList.add("lit");
  el.scrollIntoView({ block: "nearest" });
}
function place(event) {
  const plot = document.querySelector("#lane-box .lane[data-gpu=run] .plot");
  const box = plot.getBoundingClientRect();
  const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  return { box, t: shown[0] + share * (shown[1] - shown[0]), inside: event.clientX >= box.left && event.clientX <= box.right };
}
function tell(event, t) {
  const tip = $("tip"), i = Math.floor(t / data.bucket_s);
  const span = data.spans.find((s) => t >= s[1] && t < s[2]);
  tip.replaceChildren();
  make("b", tip, day(t) + " " + clock(t, true) + (span ? "  " + (span[3] ? "attempt " + span[3] + ", " : "") +
    (KINDS[span[0]] || span[0]) : ""));
  const table = make("table", tip);
  for (const l of data.lanes) {
    if (!l.low || l.low[i] === undefined || l.low[i] === EMPTY16) continue;
    const gib = (v) => (v / 65534 * l.scale / 1024).toFixed(1), row = make("tr", table);
    make("td", row, "GPU " + l.index + " " + l.role);
    make("td", row, (l.low[i] === l.high[i] ? "" : gib(l.low[i]) + " to ") + gib(l.high[i]) + " GiB");
    make("td", row, l.utilLow[i] === EMPTY8 ? "" : (l.utilLow[i] === l.utilHigh[i] ? "" : l.utilLow[i] + " to ") + l.utilHigh[i] + " %");
  }
  tip.hidden = false;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(window.innerWidth - width - 4, event.clientX + 16)) + "px";
  tip.style.top = Math.max(4, Math.min(window.innerHeight - height - 4, event.clientY + 18)) + "px";
}
function listen() {
  const box = $("lane-box");
  let from = null, drag = null, hair = null;
  const strip = (name, left, width) => {
    const el = box.querySelector("." + name) || make("div", box);
    el.className = name; el.style.left = left + "px";
    if (width !== undefined) el.style.width = width + "px";
    return el;
  };
  const gone = () => { $("tip").hidden = true; if (hair) hair.remove(); hair = null; };
  box.addEventListener("pointermove", (event) => {
    const { t, inside } = place(event), edge = box.getBoundingClientRect().left;
    if (from !== null) {
      drag = strip("drag", Math.min(from.x, event.clientX) - edge, Math.abs(event.clientX - from.x));
    }
    if (!inside) return gone();
    hair = strip("hair", event.clientX - edge);
    tell(event, t);
  });
  box.addEventListener("pointerleave", gone);
  box.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && place(event).inside) from = { x: event.clientX, t: place(event).t };
  });
  window.addEventListener("pointerup", (event) => {
    if (drag) drag.remove();
    if (from !== null && Math.abs(event.clientX - from.x) > 6) {
      const to = place(event).t;
      show(Math.min(from.t, to), Math.max(from.t, to));
    } else if (from !== null && event.target.dataset && event.target.dataset.attempt) {
      open(event.target.dataset.attempt);
    }
    from = drag = null;
  });
  window.addEventListener("pointercancel", () => { if (drag) drag.remove(); from = drag = null; });
  box.addEventListener("dblclick", () => move("all"));
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const { t } = place(event), by = event.deltaY > 0 || event.deltaX > 0 ? 1.3 : 1 / 1.3;
    show(t - (t - shown[0]) * by, t + (shown[1] - t) * by);
  }, { passive: false });
  const keys = { "+": "in", "=": "in", "-": "out", 0: "all", ArrowLeft: "left", ArrowRight: "right" };
  box.addEventListener("keydown", (event) => {
    const attempt = event.target.dataset && event.target.dataset.attempt;
    if (attempt && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); open(attempt); return; }
    if (keys[event.key]) { event.preventDefault(); move(keys[event.key]); }
  });
  document.querySelectorAll("[data-do]").forEach((b) => b.addEventListener("click", () => move(b.dataset.do)));
  document.querySelectorAll("[data-by]").forEach((b) => b.addEventListener("click", () => {
    axis = b.dataset.by;
    document.querySelectorAll("[data-by]").forEach((o) => o.setAttribute("aria-pressed", String(o === b)));
    paintCurves();
  }));
}
function links() {
  document.querySelectorAll('a[href^="#attempt-"]').forEach((a) => a.addEventListener("click", (event) => {
    event.preventDefault(); open(a.getAttribute("href").slice(9));
  }));
}

/* ---- live ---- */
async function refresh() {
  let next;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    next = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch (error) {
    $("as-of").textContent = "the server does not answer; shown is what was";
    return;
  }
  const opened = [...document.querySelectorAll("details[open]")].map((d) => d.id);
  const atEnd = shown[1] >= end - 1, whole = atEnd && shown[0] <= 0, span = shown[1] - shown[0];
  document.querySelector("header").replaceWith(document.adoptNode(next.querySelector("header")));
  const main = document.querySelector("main"), fresh = next.querySelector("main");
  for (const part of [...main.children]) if (!["lanes", "curves"].includes(part.id)) part.remove();
  const kept = { lanes: $("lanes"), curves: $("curves") };
  for (const part of [...fresh.children]) main.append(kept[part.id] || document.adoptNode(part));
  for (const id of opened) if ($(id)) $(id).open = true;
  $("data").textContent = next.getElementById("data").textContent;
  document.title = next.title;
  load(); links();
  shown = whole ? [0, end] : atEnd ? [Math.max(0, end - span), end] : shown;
  build();
}

load();
shown = [0, end];
if ($("lane-box")) { build(); listen(); }
links();
let waiting = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(paint); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((d) => { d.open = true; });
  paint();
});
window.addEventListener("afterprint", () => { folded.forEach((d) => { d.open = false; }); paint(); });
if (data.live_s) setInterval(refresh, data.live_s * 1000);
document.documentElement.dataset.drawn = String(Math.round(performance.now()));
