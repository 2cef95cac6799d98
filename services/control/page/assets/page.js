// Draws the plots, says whether the page is still live, keeps the keyboard's place. Everything else is HTML that the server renders.
(() => {
  "use strict";
  const HEIGHT = 170, DAY_S = 86400;
  const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power));
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

  function times(chart, seconds) {
    const format = chart.scales.x.max - chart.scales.x.min > DAY_S ? day : clock;
    return seconds.map((each) => format.format(each * 1000));
  }

  function options(plot) {
    const style = getComputedStyle(plot);
    const colours = ["--one", "--two"].map((name) => style.getPropertyValue(name).trim());
    const names = plot.dataset.series.split(",");
    const look = { stroke: style.color, font: "12px " + style.fontFamily, ticks: { show: false } };
    const grid = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
    const wide = (_, labels) => 14 + 7 * Math.max(0, ...(labels || []).map((each) => each.length));
    const steps = "whole" in plot.dataset ? { incrs: WHOLE } : {};
    return {
      width: width(plot), height: HEIGHT, padding: [8, 14, 0, 4], cursor: { y: false },
      legend: { show: names.length > 1, live: false, markers: { width: 0, fill: (_, index) => colours[index - 1] } },
      scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.05, 1)] } },
      axes: [
        { ...look, grid: { show: false }, values: times, space: 60, size: 28 },
        { ...look, ...steps, grid, size: wide, values: (_, found) => found.map((each) => compact.format(each)), space: 34 },
      ],
      series: [{}, ...names.map((label, index) => ({
        label, stroke: colours[index], fill: index ? undefined : colours[index] + "22", width: 1.5, spanGaps: true,
        points: { show: false },
      }))],
    };
  }

  function width(plot) {
    const style = getComputedStyle(plot);
    return plot.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  }

  async function asked(url) {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    return answer.ok ? answer.json() : null;
  }

  async function draw(plot, figures) {
    const columns = await figures;
    if (!columns) return;
    const wanted = (plot.dataset.columns || "1,2").split(",").map((number) => columns[Number(number)]);
    const data = [columns[0], ...wanted];
    if (plot.chart) plot.chart.setData(data);
    else plot.chart = new uPlot(options(plot), data, plot);
  }

  const plots = () => document.querySelectorAll(".plot");

  function drawAll() {
    const figures = {};  // several plots show columns of the same
    plots().forEach((plot) => {
      const url = plot.dataset.url;
      figures[url] = figures[url] || asked(url);
      draw(plot, figures[url]).catch(() => {});
    });
  }

  function fit() {
    plots().forEach((plot) => plot.chart && plot.chart.setSize({ width: width(plot), height: HEIGHT }));
  }

  function recolour() {
    plots().forEach((plot) => { if (plot.chart) plot.chart.destroy(); plot.chart = null; });
    drawAll();
  }

  function say(text, on) {
    const live = document.getElementById("live");
    if (!live || live.textContent === text) return;
    live.textContent = text;
    live.toggleAttribute("data-on", on);
    live.toggleAttribute("data-off", !on);
  }

  // An update replaces the rows: the row that has the keyboard focus keeps it.
  const FOCUSABLE = "a[href], button, input, select, textarea";
  const name = (each) => each.getAttribute("href") || each.name || each.textContent;
  let focused = null;

  function remember(event) {
    const at = document.activeElement, within = event.target;
    focused = at && at !== within && within.contains(at) ? { within, name: name(at), tag: at.tagName } : null;
    if (focused) focused.index = alike(focused).indexOf(at);
  }

  function alike({ within, name: wanted, tag }) {
    return [...within.querySelectorAll(FOCUSABLE)].filter((each) => each.tagName === tag && name(each) === wanted);
  }

  function restore() {
    if (!focused || focused.within.contains(document.activeElement)) return;
    const found = alike(focused);
    const again = found[focused.index] || found[0];
    if (again) again.focus({ preventScroll: true });
    focused = null;
  }

  for (const event of ["htmx:sseBeforeMessage", "htmx:beforeSwap"]) document.addEventListener(event, remember);
  for (const event of ["htmx:sseMessage", "htmx:afterSwap"]) document.addEventListener(event, restore);

  addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  document.addEventListener("DOMContentLoaded", () => { drawAll(); setInterval(drawAll, 5000); });
  document.addEventListener("htmx:sseOpen", () => say("live", true));
  document.addEventListener("htmx:sseError", () => say("not live: trying to reach control again", false));
})();
