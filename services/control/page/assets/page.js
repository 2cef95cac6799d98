// Draws the plots, and says whether the page is still live. Everything else is HTML that the server renders.
(() => {
  "use strict";
  const config = { spanGaps: true, width: 600, height: 190 };

  function series(plot) {
    const names = plot.dataset.series.split(",");
    const colours = ["#1a73e8", "#188038"];
    return [{}, ...names.map((label, index) => ({ label, stroke: colours[index], width: 1.5, scale: index ? "right" : "y" }))];
  }

  function axes(plot) {
    const stroke = getComputedStyle(plot).color;
    const both = plot.dataset.series.includes(",");
    const grid = { stroke: "rgba(128,128,128,.25)" };
    const found = [{ stroke, grid }, { stroke, grid, scale: "y" }];
    return both ? [...found, { stroke, grid: { show: false }, scale: "right", side: 1 }] : found;
  }

  async function draw(plot) {
    const answer = await fetch(plot.dataset.url, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const data = await answer.json();
    if (!plot.chart) {
      const scales = { x: { time: plot.dataset.time !== "no" } };
      plot.chart = new uPlot({ ...config, width: plot.clientWidth, scales, series: series(plot), axes: axes(plot) }, data, plot);
      addEventListener("resize", () => plot.chart.setSize({ width: plot.clientWidth, height: config.height }));
    } else {
      plot.chart.setData(data);
    }
  }

  function drawAll() {
    document.querySelectorAll(".plot").forEach((plot) => draw(plot).catch(() => {}));
  }

  function say(text) {
    const live = document.getElementById("live");
    if (live && live.textContent !== text) live.textContent = text;
  }

  document.addEventListener("DOMContentLoaded", () => { drawAll(); setInterval(drawAll, 5000); });
  document.addEventListener("htmx:sseOpen", () => say("live"));
  document.addEventListener("htmx:sseError", () => say("not live: trying to reach control again"));
})();
