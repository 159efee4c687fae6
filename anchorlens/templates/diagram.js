{
  const root = document.documentElement;
  const panel = document.getElementById("panel");
  const report = document.getElementById("panel-content");
  const slice = document.getElementById("slice"); // null where there is one
  const maps = new Map(); // place -> the figure drawn there
  let opener = null; // what had the focus before the panel was opened
  let chosen = null; // id of the cell whose report is shown
  let curve = null; // place of its training curve

  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(`cell-${id}`).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // A frame around the chosen cell, in every map that is drawn.
  function framed(figure) {
    const box = figure.layout.meta.boxes[chosen];
    const look = { type: "rect", opacity: 1, fillcolor: "rgba(0,0,0,0)", line: { color: "#000000", width: 3 } };
    const shape = ([x0, x1, y0, y1]) => ({ ...look, x0, x1, y0, y1 });
    figure.layout.shapes = box ? [shape(box)] : [];
    return figure;
  }

  function clear() {
    if (curve) plots.forget(curve);
    curve = null;
    report.replaceChildren();
  }

  async function open(id, from) {
    chosen = id;
    opener = from;
    const content = await unpacked(id).catch((error) => ({ html: "<h2 tabindex='-1'>This browser cannot unpack it</h2>", error }));
    if (chosen !== id) return; // another was asked for meanwhile
    clear();
    report.innerHTML = content.html;
    panel.hidden = false;
    root.dataset.panel = "";
    panel.scrollTop = 0;
    report.querySelector("h2").focus({ preventScroll: true });
    curve = report.querySelector("[data-curve]");
    if (curve) plots.draw(curve, { data: content.curve, layout: plots.content("curve-layout") });
    maps.forEach((figure, place) => plots.draw(place, framed(figure)));
  }

  function close() {
    if (panel.hidden) return;
    chosen = null;
    clear();
    panel.hidden = true;
    delete root.dataset.panel;
    maps.forEach((figure, place) => plots.draw(place, framed(figure)));
    opener?.focus({ preventScroll: true });
  }

  function show(place) {
    const figure = plots.content(place.dataset.figure);
    maps.set(place, figure);
    plots.draw(place, framed(figure));
    place.on("plotly_click", ({ points }) => {
      if (points[0].customdata) open(points[0].customdata, place.parentElement);
    });
  }

  function choose() {
    for (const part of document.querySelectorAll("[data-slice]")) part.hidden = part.dataset.slice !== slice.value;
  }

  for (const place of document.querySelectorAll("[data-figure]")) plots.whenNear(place, () => show(place));
  for (const button of document.querySelectorAll("[data-cell]")) {
    button.addEventListener("click", () => open(button.dataset.cell, button));
  }
  document.getElementById("close").addEventListener("click", close);
  addEventListener("keydown", ({ key }) => key === "Escape" && close());
  slice?.addEventListener("change", choose);
  if (slice) choose(); // a browser may keep the choice over a reload
}
