// A small chart of the last minutes, drawn by hand: lines over time, the newest at the right.

import { el, svg, say, span } from "./dom.js";

// How far back it shows: more as there is more, up to the last.
const WINDOWS = [60_000, 120_000, 300_000];
const LONGEST = WINDOWS.at(-1);
const HEIGHT = 112;
const PAD = { top: 8, right: 8, bottom: 18, left: 46 };
// Samples further apart than this have nothing known between them.
const GAP = 5_000;

/** The least round number that is not less than `value`. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((round) => round >= value * 0.999);
}

/** A chart in `root` of `series` (`{ name, kind, of(sample) }`), whose values `write` spells. */
export function chart(root, { title, series, write, least }) {
  const samples = [];
  const drawing = svg("svg", { role: "img", height: HEIGHT });
  const [grid, lines, cursor] = ["grid", "lines", "cursor"].map((name) => svg("g", { class: name }));
  drawing.append(grid, lines, cursor);
  const keys = series.map(({ name, kind }) => {
    const value = el("b", { class: "value" });
    return { value, root: el("span", { class: `key ${kind}` }, el("i"), name, " ", value) };
  });
  const when = el("span", { class: "when" });
  root.append(el("figcaption", {}, el("span", { class: "title" }, title), ...keys.map((key) => key.root), when), drawing);

  let width = 0;
  let pointed = null;
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.floor(contentRect.width);
    drawing.setAttribute("width", width);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    draw();
  }).observe(root);
  drawing.addEventListener("pointermove", (event) => {
    pointed = event.offsetX;
    draw();
  });
  drawing.addEventListener("pointerleave", () => {
    pointed = null;
    draw();
  });

  function draw() {
    const newest = samples.at(-1);
    if (!newest || width < 120) return;
    const known = newest.at - samples[0].at;
    const shown = WINDOWS.find((length) => length >= known) ?? LONGEST;
    const from = newest.at - shown;
    const most = Math.max(least, ...samples.flatMap((sample) => series.map(({ of }) => of(sample) ?? 0)));
    const top = ceiling(most);
    const x = (at) => PAD.left + ((at - from) / shown) * (width - PAD.left - PAD.right);
    const y = (value) => HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom);

    grid.replaceChildren(...rules(top, y), ...times(newest.at, shown, x));
    lines.replaceChildren(...series.flatMap(({ kind, of }) => trace(kind, of, x, y)));
    const near = pointed === null ? newest : nearest(pointed, x);
    keys.forEach(({ value }, at) => {
      const then = series[at].of(near);
      say(value, then === null ? "–" : write(then));
    });
    say(when, pointed === null ? "" : `${span(newest.at - near.at)} ago`);
    cursor.replaceChildren(...(pointed === null ? [] : [svg("line", { x1: x(near.at), x2: x(near.at), y1: PAD.top, y2: HEIGHT - PAD.bottom })]));
    const now = series.map(({ name, of }) => `${name} ${of(newest) === null ? "unknown" : write(of(newest))}`);
    drawing.setAttribute("aria-label", `${title}: now ${now.join(", ")}; at most ${write(most)} in the last ${span(shown)}`);
  }

  function rules(top, y) {
    return [0, top / 2, top].flatMap((value) => {
      const label = svg("text", { x: PAD.left - 6, y: y(value) + 3.5, "text-anchor": "end" });
      label.textContent = write(value);
      return [svg("line", { x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }), label];
    });
  }

  function times(now, shown, x) {
    const step = shown / (shown === LONGEST ? 5 : 4);
    const spell = (ms) => (step < 60_000 ? `−${ms / 1000} s` : `−${ms / 60_000} min`);
    return [4, 3, 2, 1, 0].filter((steps) => steps * step < shown).map((steps) => {
      const label = svg("text", { x: x(now - steps * step), y: HEIGHT - 4, "text-anchor": steps === 0 ? "end" : "middle" });
      label.textContent = steps === 0 ? "now" : spell(steps * step);
      return label;
    });
  }

  /** One line, broken where nothing is known, and where it is now. */
  function trace(kind, of, x, y) {
    let line = "";
    let area = "";
    let run = [];
    const close = () => {
      if (run.length === 0) return;
      const path = run.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join("L");
      line += `M${path}`;
      area += `M${run[0][0].toFixed(1)},${y(0)}L${path}L${run.at(-1)[0].toFixed(1)},${y(0)}Z`;
      run = [];
    };
    let last = -Infinity;
    for (const sample of samples) {
      const value = of(sample);
      if (value === null || sample.at - last > GAP) close();
      if (value !== null) run.push([x(sample.at), y(value)]);
      last = sample.at;
    }
    const end = run.at(-1);
    close();
    const drawn = [svg("path", { class: `area ${kind}`, d: area }), svg("path", { class: `line ${kind}`, d: line })];
    if (end) drawn.push(svg("circle", { class: `end ${kind}`, cx: end[0], cy: end[1], r: 2.6 }));
    return drawn;
  }

  function nearest(at, x) {
    return samples.reduce((best, one) => (Math.abs(x(one.at) - at) < Math.abs(x(best.at) - at) ? one : best));
  }

  return (sample) => {
    // A clock that went back is another stack.
    if (samples.length && sample.at <= samples.at(-1).at - GAP) samples.length = 0;
    samples.push(sample);
    while (samples[0].at < sample.at - LONGEST) samples.shift();
    draw();
  };
}
