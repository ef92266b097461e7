"use strict";
// Draws the charts of a page with uPlot. A drag zooms, a double click goes back, and the point
// nearest to the pointer is named.
(() => {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const digits = (v) => {
    const size = Math.abs(v);
    return v.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  };
  const scaled = (v, steps, rest) => {
    const found = steps.find(([, factor]) => v >= factor);
    return found ? digits(v / found[1]) + " " + found[0] : rest(v);
  };
  const plain = (v) => digits(v).replace(/\.0+$/, "");
  const units = {
    number: digits,
    count: (v) => scaled(v, [["M", 1e6], ["k", 1e4]], plain),
    bytes: (v) => scaled(v, [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]], (v) => plain(v) + " B"),
    nanoseconds: (v) => scaled(v, [["s", 1e9], ["ms", 1e6], ["µs", 1e3]], (v) => plain(v) + " ns"),
  };

  function draw(node, chart) {
    const unit = units[chart.unit];
    const { names, series } = chart;
    const rows = chart.kind === "rows";
    const lines = !rows;
    // The points of a row stand side by side.
    const offset = (at, count) => (rows ? (at - (count - 1) / 2) * Math.min(0.1, 0.6 / count) : 0);
    const tables = series.map((one) => [
      one.points.map(([x], at) => x + offset(at, one.points.length)),
      one.points.map(([, y]) => y),
    ]);
    const marks = chart.medians.map(([row, value]) => [[row - 0.35, row + 0.35], [value, value]]);
    const all = tables.concat(marks);
    const data = uPlot.join(all);
    const axis = { stroke: colour("soft"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false } };
    const places = names.map((_, at) => at);
    const across = names.length
      ? { ...axis, splits: () => places, values: (_, at) => at.map((place) => names[place] ?? "") }
      : { ...axis, values: (_, at) => at.map((second) => second + " s") };
    const letters = Math.max(0, ...names.map((name) => name.length));
    const value = (_, v) => (v == null ? "" : unit(v));
    const tip = document.createElement("div");
    tip.className = "tip";
    const nearest = (u) => {
      let best = null;
      series.forEach((one, at) => all[at][0].forEach((x, place) => {
        const y = all[at][1][place];
        const [a, b] = [u.valToPos(x, "x"), u.valToPos(y, "y")];
        const far = Math.hypot((rows ? b : a) - u.cursor.left, (rows ? a : b) - u.cursor.top);
        if (far < 30 && (!best || far < best.far)) best = { far, one, y };
      }));
      return best;
    };
    const point = (u) => {
      const found = u.cursor.left >= 0 ? nearest(u) : null;
      tip.style.display = found ? "block" : "none";
      if (!found) return;
      tip.textContent = found.one.name + ": " + unit(found.y);
      tip.style.left = u.cursor.left + 12 + "px";
      tip.style.top = u.cursor.top + 12 + "px";
    };
    let zoomed = false;
    const range = (least, most) => (_, from, to) =>
      zoomed ? [from, to] : [least, most ?? (to * 1.05 || 1)];
    const plot = new uPlot({
      width: node.clientWidth,
      height: rows ? 60 + 26 * names.length : 280,
      legend: { show: lines, live: false },
      scales: {
        x: {
          time: false,
          ori: rows ? 1 : 0,
          dir: rows ? -1 : 1,
          ...(names.length && { range: range(-0.5, names.length - 0.5) }),
        },
        y: { ori: rows ? 0 : 1, distr: chart.log ? 3 : 1, ...(!chart.log && { range: range(0) }) },
      },
      axes: [
        { ...across, side: rows ? 3 : 2, ...(rows && { size: letters * 6.5 + 20 }) },
        { ...axis, side: rows ? 2 : 3, values: (_, at) => at.map((v) => (v == null ? "" : unit(v))), size: rows ? 40 : 76 },
      ],
      series: [{}].concat(
        series.map((one) => ({
          label: one.name,
          value,
          stroke: colour("c" + one.colour),
          width: lines ? 1.6 : 0,
          spanGaps: true,
          points: { show: rows || names.length > 0 || one.points.length === 1, size: 8, fill: colour("c" + one.colour) },
        })),
        marks.map(() => ({ stroke: colour("text"), width: 2, spanGaps: true, points: { show: false } })),
      ),
      cursor: {
        drag: { x: true, y: true, uni: 20 },
        points: { show: false },
        bind: { dblclick: (u, node, back) => (event) => { zoomed = false; back(event); } },
      },
      hooks: {
        setCursor: [point],
        setSelect: [(u) => { zoomed ||= u.select.width > 0 || u.select.height > 0; }],
        init: [(u) => u.over.appendChild(tip)],
      },
    }, data, node);
    addEventListener("resize", () => plot.setSize({ width: node.clientWidth, height: plot.height }));
  }

  for (const node of document.querySelectorAll(".chart")) {
    draw(node, JSON.parse(node.querySelector("script").textContent));
  }
})();
