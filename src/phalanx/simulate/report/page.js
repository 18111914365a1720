"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false };
  const drawn = new Set();

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    const palette = value("--series").split(/\s+/);
    const pick = (series) => palette[series % palette.length];
    return { value, colour: (series) => (Array.isArray(series) ? series.map(pick) : pick(series)) };
  }

  function painted(trace, { value, colour }) {
    const own = trace.meta.quiet ? value("--quiet") : colour(trace.meta.series);
    if (trace.meta.outage) {
      const pattern = { shape: "/", fgcolor: value("--quiet"), bgcolor: "rgba(0,0,0,0)", size: 6, fillmode: "replace" };
      return { ...trace, marker: { color: value("--quiet"), pattern, line: { color: value("--quiet"), width: 1 } } };
    }
    if (trace.type === "bar") {
      return { ...trace, marker: { ...trace.marker, color: own, line: { color: value("--panel"), width: 1 } } };
    }
    if (trace.type === "box") {
      return { ...trace, line: { color: own, width: 1.5 }, fillcolor: own + "33" };
    }
    const band = trace.meta.band ? { fillcolor: own + "2e" } : {};
    const marker = trace.marker ? { marker: { ...trace.marker, color: own } } : {};
    return { ...trace, ...band, ...marker, line: { ...trace.line, color: own } };
  }

  function dressed(layout, { value }) {
    const lines = { gridcolor: value("--grid"), zerolinecolor: value("--rule"), linecolor: value("--rule") };
    return {
      ...layout,
      uirevision: "kept",
      xaxis: { ...layout.xaxis, ...lines },
      yaxis: { ...layout.yaxis, ...lines },
      font: { color: value("--text"), size: 13, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: value("--page"), bordercolor: value("--rule"), font: { color: value("--text") }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: value("--quiet"), activecolor: value("--text") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
    };
  }

  function draw(chart) {
    const figure = figures[chart.id];
    const paint = theme();
    const traces = figure.traces.map((trace) => painted(trace, paint));
    drawn.add(chart);
    return Plotly.react(chart, traces, dressed(figure.layout, paint), config);
  }

  const charts = [...document.querySelectorAll(".chart")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "600px" });
  charts.forEach((chart) => near.observe(chart));

  // Of the charts of such a section one is seen at a time.
  const figureOf = (chart) => chart.closest("figure");
  function show(pick) {
    for (const option of pick.options) {
      const chart = document.getElementById("chart-" + option.value);
      if (!chart) continue;
      figureOf(chart).hidden = option.value !== pick.value;
      if (!figureOf(chart).hidden && drawn.has(chart)) Plotly.Plots.resize(chart);
      if (!figureOf(chart).hidden && !drawn.has(chart)) near.observe(chart);
    }
  }
  for (const pick of document.querySelectorAll(".pick select")) {
    pick.addEventListener("change", () => show(pick));
    show(pick);
  }

  // Those out of sight follow one by one, so that scrolling, searching and saving the page find them drawn.
  function drawAnother() {
    const chart = charts.find((each) => !drawn.has(each) && !each.closest("figure").hidden);
    if (chart) {
      near.unobserve(chart);
      draw(chart);
      setTimeout(drawAnother, 100);
    }
  }
  addEventListener("load", () => setTimeout(drawAnother, 1000));

  dark.addEventListener("change", () => drawn.forEach(draw));
  addEventListener("beforeprint", () => {
    charts.forEach((chart) => { chart.closest("figure").hidden = false; });
    charts.filter((chart) => !drawn.has(chart)).forEach(draw);
  });
})();
