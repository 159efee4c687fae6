{
  const root = document.documentElement;
  const panel = document.getElementById("panel");
  const report = document.getElementById("panel-content");
  const slice = document.getElementById("slice"); // null where there is one
  const curveLayout = plots.content("curve-layout");
  const maps = new Map(); // element -> the figure drawn there
  let slices = []; // what the maps of each slice show
  let ids = []; // of the runs, slice by slice, in the order of the list
  let opener = null; // what had the focus before the panel was opened
  let chosen = null; // id of the cell whose report is shown
  let curve = null; // element of its training curve

  async function unpacked(packed) {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  // An element holds a line for each group of runs, which unpacks to a JSON for each run.
  async function ofRun(id, element) {
    const { textContent, dataset } = document.getElementById(element);
    const place = ids.indexOf(id);
    const lines = await unpacked(textContent.split("\n")[Math.floor(place / dataset.group)]);
    return JSON.parse(lines.split("\n")[place % dataset.group]);
  }

  // A map as plotly.js reads it: what its slice says of each cell is put where the map names the cell.
  function figureOf({ dataset }) {
    const { ids, descriptions, boxes, figures } = slices[dataset.of];
    const { data, layout } = figures[dataset.figure];
    const named = (trace) => ({
      ...trace,
      customdata: trace.customdata.map((k) => ids[k]),
      hovertext: trace.customdata.map((k) => descriptions[k]),
    });
    const meta = { boxes: Object.fromEntries(boxes.map((box, k) => [ids[k], box])) };
    return {
      data: data.map((trace) => (trace.customdata ? named(trace) : trace)),
      layout: { ...layout, meta, template: curveLayout.template },
    };
  }

  // A frame around the chosen cell, in every map that is drawn.
  function framed(figure) {
    const box = figure.layout.meta.boxes[chosen];
    const frame = { type: "rect", opacity: 1, fillcolor: "rgba(0,0,0,0)", line: { color: "#000000", width: 3 } };
    const shape = ([x0, x1, y0, y1]) => ({ ...frame, x0, x1, y0, y1 });
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
    const both = async () => [await ofRun(id, "runs"), await ofRun(id, "curves")];
    const unread = '<h2 tabindex="-1">This browser cannot unpack the data</h2>';
    const [run, traces] = await ready.then(both).catch(() => [unread, []]);
    if (chosen !== id) return; // another was asked for meanwhile
    clear();
    report.innerHTML = run; // every text in it was escaped when it was written
    panel.hidden = false;
    root.dataset.panel = "";
    panel.scrollTop = 0;
    report.querySelector("h2").focus({ preventScroll: true });
    curve = report.querySelector("[data-curve]");
    if (curve) plots.draw(curve, { data: traces, layout: curveLayout });
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
    const figure = figureOf(place);
    maps.set(place, figure);
    plots.draw(place, framed(figure));
    place.on("plotly_click", ({ points }) => {
      if (points[0].customdata) open(points[0].customdata, place.parentElement);
    });
  }

  function choose() {
    for (const part of document.querySelectorAll("[data-slice]")) part.hidden = part.dataset.slice !== slice.value;
  }

  // All maps are unpacked at once, so that none is missing when the page is printed.
  async function start() {
    slices = JSON.parse(await unpacked(document.getElementById("slices").textContent));
    ids = slices.flatMap((slice) => slice.ids);
    for (const place of document.querySelectorAll("[data-figure]")) plots.whenNear(place, () => show(place));
    root.dataset.ready = "";
  }

  const ready = start();
  ready.catch(() => {
    for (const place of document.querySelectorAll("[data-figure]")) place.textContent = "This browser cannot unpack the data";
  });
  for (const button of document.querySelectorAll("[data-cell]")) {
    button.addEventListener("click", () => open(button.dataset.cell, button));
  }
  document.getElementById("close").addEventListener("click", close);
  addEventListener("keydown", ({ key }) => key === "Escape" && close());
  slice?.addEventListener("change", choose);
  if (slice) choose(); // a browser may keep the choice over a reload
}
