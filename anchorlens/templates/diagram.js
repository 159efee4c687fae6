{
  const root = document.documentElement;
  const panel = document.getElementById("panel");
  const report = document.getElementById("panel-content");
  const slice = document.getElementById("slice"); // null where there is one
  const ids = plots.content("cell-ids"); // slice by slice, in the order of the list
  const curveLayout = plots.content("curve-layout");
  const packs = [...document.querySelectorAll(".pack")].map((element) => ({ element, texts: null }));
  const packSize = Number(panel.dataset.cellsAPack);
  const slices = []; // what the maps of each slice show
  const maps = new Map(); // element -> the figure drawn there
  let opener = null; // what had the focus before the panel was opened
  let chosen = null; // id of the cell whose report is shown
  let curve = null; // element of its training curve

  async function unpacked(element) {
    const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // The reports of a pack: `lines` are kinds of lines, `values` what stood in each of their gaps, in order.
  async function textsOf({ element }) {
    const { lines, values, texts } = await unpacked(element);
    const columns = values.map((gaps) => gaps.map((column) => column.split(" ")));
    const used = lines.map(() => 0);
    const line = (number) => {
      const k = used[number]++;
      return lines[number].reduce((text, part, i) => text + columns[number][i - 1][k] + part);
    };
    return texts.map((numbers) => numbers.map(line).join("\n"));
  }

  async function reportOf(id) {
    const k = ids.indexOf(id);
    const pack = packs[Math.floor(k / packSize)];
    pack.texts ??= textsOf(pack);
    const text = (await pack.texts)[k % packSize].replaceAll("\x1a", id); // its own id, as panel.py packs it
    const end = text.lastIndexOf("\n");
    return { html: text.slice(0, end), curve: JSON.parse(text.slice(end + 1)) };
  }

  // A map as plotly.js reads it: what its slice says of each cell is put where the map names the cell.
  function figureOf({ dataset }) {
    const { first, descriptions, boxes, figures } = slices[dataset.of];
    const { data, layout } = figures[dataset.figure];
    const named = (trace) => ({
      ...trace,
      customdata: trace.customdata.map((k) => ids[first + k]),
      hovertext: trace.customdata.map((k) => descriptions[k]),
    });
    const meta = { boxes: Object.fromEntries(boxes.map((box, k) => [ids[first + k], box])) };
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
    const content = await reportOf(id).catch((error) => ({ html: "<h2 tabindex='-1'>This browser cannot unpack it</h2>", error }));
    if (chosen !== id) return; // another was asked for meanwhile
    clear();
    report.innerHTML = content.html;
    panel.hidden = false;
    root.dataset.panel = "";
    panel.scrollTop = 0;
    report.querySelector("h2").focus({ preventScroll: true });
    curve = report.querySelector("[data-curve]");
    if (curve) plots.draw(curve, { data: content.curve, layout: curveLayout });
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
    for (const element of document.querySelectorAll(".slice")) {
      slices.push({ first: Number(element.dataset.first), ...(await unpacked(element)) });
    }
    for (const place of document.querySelectorAll("[data-figure]")) plots.whenNear(place, () => show(place));
    root.dataset.ready = "";
  }

  start().catch(() => {
    for (const place of document.querySelectorAll("[data-figure]")) place.textContent = "This browser cannot unpack it";
  });
  for (const button of document.querySelectorAll("[data-cell]")) {
    button.addEventListener("click", () => open(button.dataset.cell, button));
  }
  document.getElementById("close").addEventListener("click", close);
  addEventListener("keydown", ({ key }) => key === "Escape" && close());
  slice?.addEventListener("change", choose);
  if (slice) choose(); // a browser may keep the choice over a reload
}
