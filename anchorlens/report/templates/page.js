"use strict";
(() => {
  const root = document.documentElement;
  const PAPER = { width: 660, height: 850 }; // pixels for a picture on an A4 page
  const PAPER_WIDE = { width: 980, height: 500 }; // on one that lies on its side
  const PAPER_SCALE = 0.7; // so that two pictures stand on a page
  const LEAST_SCALE = 0.54; // on a screen; where there is less room, a picture scrolls in its box
  const AHEAD = "1000px 0px"; // drawn when it comes as near as this to the window
  const content = (id) => JSON.parse(document.getElementById(id).textContent);
  const displayModeBar = matchMedia("(hover: hover)").matches ? "hover" : false; // it would hide titles
  const config = { ...content("plotly-config"), displayModeBar };
  const plots = [...document.querySelectorAll("[data-figure]")];
  const views = [...document.querySelectorAll("[data-heads]")];
  const drawn = new Set();

  // The pictures are drawn for white paper: here their ink is the page's, and their ground is clear.
  function coloured(figure) {
    const token = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const ink = token("--ink");
    const clear = "rgba(0,0,0,0)";
    const swap = { "rgb(36,36,36)": ink, "#000000": ink };
    const revive = (_, value) => (typeof value === "string" ? swap[value] ?? value : value);
    const { data, layout } = JSON.parse(JSON.stringify(figure), revive);
    for (const { textfont } of data) {
      if (textfont?.color === "#0072B2") textfont.color = token("--link"); // to be read on dark ground too
    }
    const font = { ...layout.font, color: ink, family: getComputedStyle(document.querySelector(".anchorlens")).fontFamily };
    const modebar = { bgcolor: clear, color: token("--muted"), activecolor: ink };
    return { data, layout: { ...layout, font, modebar, paper_bgcolor: clear, plot_bgcolor: clear } };
  }

  // A picture is drawn as large as it was made, so that nothing in it overlaps, and scaled to the room there is.
  function fit(plot) {
    const { width, height } = plot.layout;
    const box = plot.parentElement;
    let scale = Math.min(1, Math.max(LEAST_SCALE, box.clientWidth / width));
    if ("print" in root.dataset) {
      const page = plot.closest(".wide") ? PAPER_WIDE : PAPER;
      scale = Math.min(PAPER_SCALE, page.width / width, page.height / height);
    }
    plot.style.width = `${width}px`;
    plot.style.transform = scale < 1 ? `scale(${scale})` : "";
    box.style.height = `${Math.ceil(scale * height)}px`;
  }

  function draw(plot) {
    const { data, layout } = coloured(content(plot.dataset.figure));
    drawn.add(plot);
    Plotly.react(plot, data, layout, config);
    fit(plot);
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
      if (drawn.has(plot)) fit(plot);
    }
  });
  for (const plot of plots) resized.observe(plot.parentElement);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  addEventListener("beforeprint", () => {
    root.dataset.print = "";
    plots.forEach(draw);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    plots.forEach(draw);
  });
})();
