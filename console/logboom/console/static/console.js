// What pages do in the browser beyond htmx: theme, copying, charts. Pages work without it.
"use strict";
(() => {
  const root = document.documentElement;

  // Theme.
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-switch]");
    if (!button) return;
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("logboom-theme", root.dataset.theme); } catch { /* not kept then */ }
    drawCharts(true);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(true));

  // A narrow screen shows a part of the menu: that with the page shown.
  document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Copying.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = button.parentElement.querySelector("code, pre");
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // Not a secure context: select it, so that the viewer can copy it.
      getSelection().selectAllChildren(source);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });

  // One box for all boxes of a form.
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-check-all]");
    if (!box) return;
    for (const each of document.getElementById(box.dataset.checkAll).elements) {
      if (each.type === "checkbox" && each !== box) each.checked = box.checked;
    }
  });

  // What renews itself rests while nobody looks.
  document.addEventListener("htmx:before:request", (event) => {
    const source = event.detail?.ctx?.sourceElement;
    if (document.hidden && source?.getAttribute("hx-trigger")?.startsWith("every")) event.preventDefault();
  });

  // Live tails: rows come on top, the oldest leave, and a pause keeps what is shown.
  const live = document.querySelector("[data-live]");
  if (live) {
    const rows = document.querySelector("[data-keep]");
    const pause = document.querySelector("[data-pause]");
    const text = live.querySelector("[data-live-text]");
    let paused = false, missed = 0;
    const show = (state, words) => { live.dataset.state = state; text.textContent = words; };
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Go on" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      missed = 0;
      show(paused ? "paused" : "", paused ? "Paused" : "Following");
    });
    rows.addEventListener("htmx:sse:before:message", (event) => {
      if (!paused) return;
      event.preventDefault();
      missed += (event.detail.message.data.match(/<tr/g) || []).length;
      show("paused", `Paused, ${missed.toLocaleString("en")} came meanwhile`);
    });
    rows.addEventListener("htmx:sse:after:connection", () => { if (!paused) show("", "Following"); });
    rows.addEventListener("htmx:sse:error", () => show("broken", "Connection lost, trying again"));
    new MutationObserver(() => {
      document.querySelector("[data-waiting]")?.remove();
      while (rows.rows.length > Number(rows.dataset.keep)) rows.deleteRow(-1);
    }).observe(rows, { childList: true });
  }

  // Charts.
  const UNITS_BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];
  const BINARY_STEPS = [...Array(50).keys()].map((power) => 2 ** power);
  const short = (value) => {
    for (const [limit, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
      if (Math.abs(value) >= limit) return `${+(value / limit).toPrecision(3)}${unit}`;
    }
    return `${+value.toPrecision(3)}`;
  };
  const bytes = (value) => {
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < UNITS_BYTES.length - 1) { value /= 1024; unit++; }
    return `${+value.toPrecision(3)} ${UNITS_BYTES[unit]}`;
  };
  const span = (value) => value < 1000 ? `${short(value)} ms`
    : value < 60000 ? `${+(value / 1000).toPrecision(3)} s`
    : value < 3600000 ? `${+(value / 60000).toPrecision(3)} min` : `${+(value / 3600000).toPrecision(3)} h`;
  const FORMATS = {
    count: short, rate: (v) => `${short(v)}/s`, bytes, bytes_rate: (v) => `${bytes(v)}/s`, ms: span,
  };
  const drawn = new Map();

  const draw = (figure) => {
    const plot = figure.querySelector(".plot");
    const text = figure.dataset.chart;
    const model = JSON.parse(text);
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const lines = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"].map(color);
    const format = FORMATS[model.unit];
    const clock = (ticks, step) => ticks.map((v) => new Date(v * 1000).toISOString().slice(11, step < 60 ? 19 : 16));
    const axis = { stroke: color("--dim"), grid: { stroke: color("--edge"), width: 1 }, ticks: { show: false } };
    const options = {
      width: Math.max(80, plot.clientWidth),
      height: model.spark ? 36 : 180,
      cursor: { show: !model.spark },
      legend: { show: !model.spark, live: true },
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, model.unit === "count" ? 4 : 1) * 1.05] } },
      axes: model.spark ? [{ show: false }, { show: false }] : [
        { ...axis, size: 28, space: 80, values: (_, ticks, __, ___, step) => clock(ticks, step) },
        { ...axis, size: 76, incrs: model.unit.startsWith("bytes") ? BINARY_STEPS : undefined, values: (_, ticks) => ticks.map((v) => v === null ? "" : format(v)) },
      ],
      series: [
        { label: "UTC", value: (_, v) => v === null || v === undefined ? "newest" : new Date(v * 1000).toISOString().slice(11, 19) },
        ...model.labels.map((label, at) => ({
          label, stroke: lines[at % lines.length], width: 1.5, points: { show: false },
          value: (plotted, v, series) => {
            const seen = v ?? plotted.data[series].findLast((each) => each !== null && each !== undefined);
            return seen === null || seen === undefined ? "–" : format(seen);
          },
        })),
      ],
      tzDate: (s) => uPlot.tzDate(new Date(s * 1e3), "Etc/UTC"),
    };
    plot.replaceChildren();
    const chart = new uPlot(options, model.data, plot);
    drawn.set(figure.id, { figure, text, chart, labels: model.labels.join("\n"), width: options.width });
  };

  const drawCharts = (anew) => {
    for (const [id, each] of drawn) if (!each.figure.isConnected) { each.chart.destroy(); drawn.delete(id); }
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const before = drawn.get(figure.id);
      const text = figure.dataset.chart;
      if (!anew && before && before.figure === figure && before.text === text) continue;
      const model = JSON.parse(text);
      if (!anew && before && before.figure === figure && before.labels === model.labels.join("\n")) {
        before.chart.setData(model.data);
        before.text = text;
      } else if (model.data[0].length > 1) {
        before?.chart.destroy();
        draw(figure);
      }
    }
  };
  let resizing;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => drawCharts(true), 150); });
  document.addEventListener("htmx:after:swap", () => drawCharts(false));
  drawCharts(false);
})();
