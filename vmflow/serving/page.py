"""The page of a served session: its load as numbers and curves, and a pad to draw a digit on if the session takes
one floating-point image of 8 x 8 or 28 x 28 pixels.

Its script asks the server for counts and predictions.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from hashlib import sha256
from typing import Any, Final

from vmflow.dtypes import FLOATING

from .session import InferenceSession

# Shapes that are taken for images of digits, and how wide these are.
_IMAGES: Final[dict[tuple[int, ...], int]] = {
    shape: width for width in (8, 28) for shape in ((1, width, width), (width, width), (width * width,))
}

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --ink: #2a78d6; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
#state { border: 1px solid var(--line); border-radius: 1em; padding: .1em .7em; font-size: .9rem; }
#tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem; }
#tiles div { border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .7rem; }
#tiles b { display: block; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
#tiles svg { width: 100%; height: 2.2rem; display: block; }
polyline { fill: none; stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
table { border-collapse: collapse; } td { padding: .1rem 1.2rem .1rem 0; font-variant-numeric: tabular-nums; }
#draw { display: flex; gap: 1.5rem; align-items: flex-start; flex-wrap: wrap; }
canvas { border: 1px solid var(--line); border-radius: .4rem; touch-action: none; background: #fff; }
#bars div { display: grid; grid-template-columns: 1.5rem 12rem auto; gap: .5rem; align-items: center; }
#bars i { display: block; height: .8rem; background: var(--ink); border-radius: .2rem; }
#bars .best { font-weight: 700; }
"""

_SCRIPT: Final = """
const $ = id => document.getElementById(id);
const setup = JSON.parse($("setup").textContent);
const bytes = n => n < 1 << 20 ? (n / 1024).toFixed(1) + " KiB" : (n / (1 << 20)).toFixed(1) + " MiB";
const ms = s => (1000 * s).toFixed(2) + " ms";
const whole = n => String(Math.round(n));
let last = null;
const rate = (now, key) => last ? (now[key] - last[key]) / (now.uptime - last.uptime) : 0;
const fill = now => {
  const places = last ? now.places - last.places : 0;
  return places ? 100 * (now.samples - last.samples) / places : 0;
};
const tiles = [
  ["queued", n => n.queued, whole],
  ["running", n => n.running, whole],
  ["requests per second", n => rate(n, "done"), v => v.toFixed(1)],
  ["batches per second", n => rate(n, "batches"), v => v.toFixed(1)],
  ["places of batches in use", fill, v => v.toFixed(0) + " %"],
  ["streams ended", n => n.streams, whole],
  ["turned away per second", n => rate(n, "turned_away"), v => v.toFixed(1)],
  ["loop late by", n => n.loop_lag.last, ms],
  ["memory in tensors", n => n.memory.allocated, bytes],
];
const series = tiles.map(() => []);
tiles.forEach(([name], i) => {
  const tile = document.createElement("div");
  tile.innerHTML = '<span></span><b>&nbsp;</b><svg viewBox="0 0 100 30" preserveAspectRatio="none"><polyline/></svg>';
  tile.querySelector("span").textContent = name;
  $("tiles").append(tile);
});
const flat = (value, name = "", rows = []) => {
  if (value !== null && typeof value === "object")
    for (const [key, inner] of Object.entries(value)) flat(inner, name ? name + " " + key : key, rows);
  else rows.push([name.replaceAll("_", " "), typeof value === "number" && value % 1 ? value.toFixed(6) : value]);
  return rows;
};
function show(now) {
  now.turned_away = Object.values(now.rejected).reduce((a, b) => a + b, 0);
  $("state").textContent = now.state + ", version " + now.version;
  tiles.forEach(([, value, text], i) => {
    const points = series[i], tile = $("tiles").children[i];
    points.push(value(now));
    if (points.length > 100) points.shift();
    const most = Math.max(...points, 1e-9);
    tile.querySelector("b").textContent = text(points.at(-1));
    tile.querySelector("polyline").setAttribute("points",
      points.map((v, x) => (x + 100 - points.length) + "," + (29 - 27 * v / most)).join(" "));
  });
  $("all").replaceChildren(...flat(now).map(row => {
    const line = document.createElement("tr");
    line.append(...row.map(text => Object.assign(document.createElement("td"), {textContent: text})));
    return line;
  }));
  last = now;
}
async function look() {
  try { show(await (await fetch("stats")).json()); } catch { $("state").textContent = "no answer"; }
  setTimeout(look, 1000);
}
look();

if (setup.image) {
  const pad = $("pad"), pen = pad.getContext("2d", {willReadFrequently: true}), side = pad.width;
  const clear = () => {
    pen.fillStyle = "#fff"; pen.fillRect(0, 0, side, side); $("bars").replaceChildren(); $("said").textContent = "";
  };
  pen.lineWidth = side / 9; pen.lineCap = pen.lineJoin = "round"; pen.strokeStyle = "#000";
  let down = false, timer = 0;
  const place = e => {
    const box = pad.getBoundingClientRect();
    return [(e.clientX - box.left) * side / box.width, (e.clientY - box.top) * side / box.height];
  };
  pad.onpointerdown = e => {
    down = true; pad.setPointerCapture(e.pointerId);
    pen.beginPath(); pen.moveTo(...place(e)); pen.lineTo(...place(e)); pen.stroke();
  };
  pad.onpointermove = e => {
    if (!down) return;
    pen.lineTo(...place(e)); pen.stroke();
    if (!timer) timer = setTimeout(() => { timer = 0; ask(); }, 150);
  };
  pad.onpointerup = pad.onpointercancel = () => { if (down) { down = false; ask(); } };
  $("clear").onclick = clear;
  function pixels() {
    // The drawing, centred and as large as it fits, as in the data sets of digits.
    const seen = pen.getImageData(0, 0, side, side).data, ink = (x, y) => 1 - seen[4 * (y * side + x)] / 255;
    let left = side, right = 0, top = side, bottom = 0;
    for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) if (ink(x, y) > .5) {
      left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
    const wide = setup.image, cells = Array.from({length: wide}, () => Array(wide).fill(0));
    if (left > right) return cells;
    const span = Math.max(right - left, bottom - top) * (wide === 8 ? 1.02 : 1.4) + 1, fine = 4;
    const x0 = (left + right - span) / 2, y0 = (top + bottom - span) / 2, step = span / wide / fine;
    for (let y = 0; y < wide * fine; y++) for (let x = 0; x < wide * fine; x++) {
      const u = Math.round(x0 + (x + .5) * step), v = Math.round(y0 + (y + .5) * step);
      if (u >= 0 && v >= 0 && u < side && v < side) cells[y / fine | 0][x / fine | 0] += ink(u, v) / fine / fine;
    }
    return cells;
  }
  let asked = 0;
  async function ask() {
    const cells = pixels(), mine = ++asked;
    const inputs = setup.rank === 3 ? [cells] : setup.rank === 1 ? cells.flat() : cells;
    const begun = performance.now();
    const answer = await fetch("predict", {
      method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({inputs}),
    });
    const told = await answer.json();
    if (mine !== asked) return;
    $("said").textContent = answer.ok ? (performance.now() - begun).toFixed(0) + " ms" : told.detail;
    if (!answer.ok) return;
    const scores = Array.isArray(told.outputs) ? told.outputs.flat(9) : null;
    if (!scores || scores.length < 2) { $("bars").textContent = JSON.stringify(told.outputs); return; }
    const most = Math.max(...scores), sum = scores.reduce((a, v) => a + Math.exp(v - most), 0);
    const odd = scores.some(v => v < 0) || Math.abs(scores.reduce((a, v) => a + v, 0) - 1) > .01;
    const parts = odd ? scores.map(v => Math.exp(v - most) / sum) : scores;
    $("bars").replaceChildren(...parts.map((part, i) => {
      const [row, bar, hold] = ["div", "i", "span"].map(it => document.createElement(it));
      bar.style.width = 100 * part + "%"; hold.append(bar);
      row.append(String(i), hold, (100 * part).toFixed(1) + " %");
      row.className = scores[i] === most ? "best" : "";
      return row;
    }));
  }
  clear();
}
"""

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>%(name)s</title><link rel="icon" href="data:,"><style>%(style)s</style></head><body>
<h1>%(name)s <span id="state">&hellip;</span></h1>
%(draw)s
<h2>Now</h2><div id="tiles"></div>
<h2>Since the beginning</h2><table id="all"></table>
<p><a href="openapi.json">openapi.json</a> &middot; <a href="stats">stats</a> &middot; <a href="metrics">metrics</a></p>
<script type="application/json" id="setup">%(setup)s</script><script>%(script)s</script></body></html>
"""

_DRAW: Final = """<h2>Draw a digit</h2><div id="draw"><div><canvas id="pad" width="224" height="224"></canvas><br>
<button id="clear">clear</button> <span id="said"></span></div><div id="bars"></div></div>"""


def page(session: InferenceSession) -> str:
    """The document."""
    setup: dict[str, Any] = {"image": None}
    signature = session.signature
    if signature.single and signature.specs[0].dtype.category == FLOATING:
        shape = signature.specs[0].shape
        setup = {
            "image": _IMAGES.get(tuple([size if isinstance(size, int) else 0 for size in shape])),
            "rank": len(shape),
        }
    return _PAGE % {
        "name": html.escape(session.name),
        "style": _STYLE,
        "script": _SCRIPT,
        "draw": _DRAW if setup["image"] else "",
        "setup": json.dumps(setup),
    }


def _hash(text: str) -> str:
    return "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"


# With this header, browsers apply only the page's own scripts and styles.
POLICY: Final = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
