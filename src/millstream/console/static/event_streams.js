/* What moves: charts, the live tail, and searches, each by one stream of events from the server. */
(() => {
  "use strict";
  const { ready, all } = window.millstream;
  const KEPT = 500; // messages of a live tail on the page
  const POINTS = 450;

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const units = ["", "k", "M", "G", "T", "P"];
  function short(value, unit) {
    let step = 0;
    let amount = value;
    while (Math.abs(amount) >= 1000 && step < units.length - 1) { amount /= 1000; step += 1; }
    const digits = Math.abs(amount) >= 100 || amount === Math.round(amount) ? 0 : 1;
    return `${amount.toFixed(digits)}${step || unit === "B" ? " " : ""}${units[step]}${unit}`;
  }

  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

  // The next number up that reads well, so that the line does not touch the top.
  function round(high) {
    const step = 10 ** Math.floor(Math.log10(Math.max(high, 1) * 1.05));
    return [1, 2, 3, 4, 6, 8, 10, 12].map((n) => n * step).find((n) => n >= Math.max(high * 1.05, 2));
  }

  // --- charts ---------------------------------------------------------------------------------------------------------

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.unit = figure.dataset.unit;
      this.data = [[], []];
      this.box = figure.querySelector(".plot");
    }

    add([times, values]) {
      this.data[0].push(...times);
      this.data[1].push(...values);
      if (this.data[0].length > POINTS) this.data = this.data.map((line) => line.slice(-POINTS));
      this.draw();
    }

    draw() {
      if (this.data[0].length < 2) return;
      this.figure.classList.add("drawn");
      const last = this.data[1][this.data[1].length - 1];
      this.figure.querySelector(".now").textContent = short(last, this.unit);
      this.box.setAttribute("aria-label", `${this.figure.querySelector("figcaption span").textContent}, now ${short(last, this.unit)}`);
      if (this.plot) { this.plot.setData(this.data); return; }
      const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      this.plot = new uPlot({
        width: this.box.clientWidth, height: 150, padding: [8, 24, 0, 0],
        cursor: { y: false, points: { size: 6 } }, legend: { show: false }, select: { show: false },
        scales: { y: { range: (_, low, high) => [0, round(high)] } },
        axes: [{ ...axis, space: 70, size: 26, values: (_, splits) => splits.map(clock) }, { ...axis, size: 54, splits: (_, index, low, high) => [0, high / 2, high], values: (_, splits) => splits.map((v) => short(v, this.unit)) }],
        series: [{}, { stroke: style("--accent"), fill: `color-mix(in srgb, ${style("--accent")} 14%, transparent)`, width: 1.75, points: { show: false } }],
      }, this.data, this.box);
    }

    again() {
      if (!this.plot) return;
      this.plot.destroy();
      this.plot = null;
      this.draw();
    }
  }

  const charts = [];
  function live(box) {
    const mine = {};
    all("[data-chart]", box).forEach((figure) => { mine[figure.dataset.chart] = new Chart(figure); });
    charts.push(...Object.values(mine));
    const source = new EventSource(box.dataset.live);
    source.addEventListener("points", (event) => {
      const update = JSON.parse(event.data);
      for (const [name, points] of Object.entries(update)) mine[name]?.add(points);
      for (const [name, text] of Object.entries(update.numbers || {})) {
        const place = box.querySelector(`[data-number="${name}"]`);
        if (place && place.textContent !== text) {
          place.textContent = text;
          if (["under", "offline"].includes(name)) place.parentElement.classList.toggle("alarm", text !== "0");
        }
      }
      problem(update.problem);
    });
    source.onopen = () => { for (const chart of Object.values(mine)) chart.data = [[], []]; };
  }

  function problem(text) {
    const place = document.getElementById("problem");
    place.hidden = !text;
    place.querySelector("[data-problem]").textContent = text || "";
  }

  // --- messages that arrive -------------------------------------------------------------------------------------------

  function rows(html) {
    const made = document.createElement("template");
    made.innerHTML = html;
    return [...made.content.querySelectorAll("details.msg")];
  }

  function tail(bar) {
    const button = bar.querySelector("[data-tail-button]");
    const status = bar.querySelector("[data-tail-status]");
    const list = document.getElementById("messages");
    let source = null;
    let count = 0;
    let left = 0;
    const stop = (text) => {
      source?.close();
      source = null;
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Live tail";
      status.textContent = text;
    };
    button.addEventListener("click", () => {
      if (source) { stop(`Stopped after ${count} ${count === 1 ? "message" : "messages"}.`); return; }
      count = 0;
      left = 0;
      list.replaceChildren();
      document.querySelector("[data-empty]")?.remove();
      button.setAttribute("aria-pressed", "true");
      button.textContent = "Stop";
      status.textContent = "Waiting for new messages.";
      source = new EventSource(bar.dataset.tail);
      source.addEventListener("rows", (event) => {
        const update = JSON.parse(event.data);
        const fresh = rows(update.html);
        fresh.forEach((row) => row.classList.add("new"));
        list.prepend(...fresh);
        count += update.count;
        left += update.skipped;
        while (list.children.length > KEPT) list.lastElementChild.remove();
        status.textContent = `${count} new ${count === 1 ? "message" : "messages"}${left ? `, about ${left} more went by too fast to show` : ""}.`;
      });
      source.addEventListener("problem", (event) => stop(JSON.parse(event.data).text));
      source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) stop("The live tail was closed by the console."); };
    });
  }

  function search(box) {
    const source = new EventSource(box.dataset.searchEvents);
    const list = box.querySelector("[data-messages]");
    const status = box.querySelector("#search-status");
    source.addEventListener("open", () => list.replaceChildren());
    source.addEventListener("rows", (event) => { list.append(...rows(JSON.parse(event.data).html)); ready(list); });
    source.addEventListener("status", (event) => {
      const update = JSON.parse(event.data).html;
      const busy = status.contains(document.activeElement);
      status.innerHTML = update;
      htmx.process(status);
      if (busy) status.querySelector("button")?.focus();
    });
    source.addEventListener("end", () => source.close());
  }

  document.addEventListener("theme", () => charts.forEach((chart) => chart.again()));
  document.addEventListener("DOMContentLoaded", () => {
    all("[data-live]").forEach(live);
    all("[data-tail]").forEach(tail);
    all("[data-search-events]").forEach(search);
    new ResizeObserver(() => charts.forEach((chart) => chart.plot?.setSize({ width: chart.box.clientWidth, height: 150 }))).observe(document.getElementById("main"));
  });
})();
