"use strict";
(() => {
  const root = document.documentElement;
  const PAPER_WIDTH = 660; // pixels of an A4 page between its margins
  const PAPER_SCALE = 0.7; // so that two pictures stand on a page
  const LEAST_WIDTH = 0.8; // of a picture's own; where there is less room, it is scaled down
  const LEAST_SCALE = 0.66; // on a screen; where there is still less room, it scrolls in its box
  const AHEAD = "1000px 0px"; // drawn when it comes as near as this to the window
  const content = (id) => JSON.parse(document.getElementById(id).textContent);
  const displayModeBar = matchMedia("(hover: hover)").matches ? "hover" : false; // it would hide titles
  const config = { ...content("plotly-config"), displayModeBar };
  const plots = [...document.querySelectorAll("[data-figure]")];
  const views = [...document.querySelectorAll("[data-heads]")];
  const drawn = new Map(); // picture -> its own size

  // The pictures are drawn for white paper: here their ink is the page's, and their ground is clear.
  function coloured(figure) {
    const token = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const ink = token("--ink");
    const clear = "rgba(0,0,0,0)";
    const swap = { "rgb(36,36,36)": ink, "#000000": ink };
    const revive = (_, value) => (typeof value === "string" ? swap[value] ?? value : value);
    const { data, layout } = JSON.parse(JSON.stringify(figure), revive);
    const font = { ...layout.font, color: ink, family: getComputedStyle(document.querySelector(".anchorlens")).fontFamily };
    const modebar = { bgcolor: clear, color: token("--muted"), activecolor: ink };
    return { data, layout: { ...layout, font, modebar, paper_bgcolor: clear, plot_bgcolor: clear } };
  }

  // The width to draw a picture with, which is made to fit by scaling what is drawn.
  function fit(plot, { width: own, height }) {
    const printing = "print" in root.dataset;
    const room = printing ? PAPER_WIDTH : plot.parentElement.clientWidth;
    const width = Math.round(Math.min(own, Math.max(room, LEAST_WIDTH * own)));
    const whole = room / width;
    const scale = printing ? Math.min(PAPER_SCALE, whole) : Math.min(1, Math.max(LEAST_SCALE, whole));
    plot.style.transform = scale < 1 ? `scale(${scale})` : "";
    plot.style.width = `${width}px`;
    plot.parentElement.style.height = `${Math.ceil(scale * height)}px`;
    return width;
  }

  function draw(plot) {
    const { data, layout } = coloured(content(plot.dataset.figure));
    const own = { width: layout.width, height: layout.height };
    drawn.set(plot, own);
    return Plotly.react(plot, data, { ...layout, width: fit(plot, own) }, config);
  }

  function show(place) {
    if (place.dataset.figure) draw(place);
    else CircuitsVis.render(place.id, CircuitsVis.AttentionHeads, content(place.dataset.heads));
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        if (!drawn.has(target)) show(target);
      }
    },
    { rootMargin: AHEAD },
  );
  for (const place of [...plots, ...views]) near.observe(place);

  const resized = new ResizeObserver((entries) => {
    if ("print" in root.dataset) return;
    for (const { target } of entries) {
      const plot = target.firstElementChild;
      if (!drawn.has(plot)) continue;
      const width = fit(plot, drawn.get(plot));
      if (width !== plot.layout.width) Plotly.relayout(plot, { width });
    }
  });
  for (const plot of plots) resized.observe(plot.parentElement);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn.keys()].forEach(draw));
  addEventListener("beforeprint", () => {
    root.dataset.print = "";
    plots.forEach(draw);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    plots.forEach(draw);
  });
})();
