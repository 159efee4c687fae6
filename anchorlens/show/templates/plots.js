// Pictures of a page: drawn when they come near, in the page's colours, scaled to the room there is, printed.
const plots = (() => {
  const root = document.documentElement;
  const PAPER = { width: 660, height: 850 }; // pixels for a picture on an A4 page
  const PAPER_WIDE = { width: 980, height: 500 }; // on one that lies on its side
  const PAPER_SCALE = 0.7; // so that two pictures stand on a page
  const LEAST_SCALE = 0.54; // on a screen; where there is less room, a picture scrolls in its box
  const AHEAD = "1000px 0px"; // drawn when it comes as near as this to the window
  const content = (id) => JSON.parse(document.getElementById(id).textContent);
  const displayModeBar = matchMedia("(hover: hover)").matches ? "hover" : false; // it would hide titles
  const config = { ...content("plotly-config"), displayModeBar };
  const figures = new Map(); // place -> the figure that is drawn there
  const waiting = new Map(); // place -> what shows it

  // The pictures are drawn for white paper: here their ink is the page's, and their ground is clear.
  function coloured(figure) {
    const token = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const ink = token("--ink");
    const clear = "rgba(0,0,0,0)";
    const swap = { "rgb(36,36,36)": ink, "#000000": ink, "rgb(255,255,255)": token("--paper") };
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
  function fit(place) {
    const { width, height } = place.layout;
    const box = place.parentElement;
    let scale = Math.min(1, Math.max(LEAST_SCALE, box.clientWidth / width));
    if ("print" in root.dataset) {
      const page = place.closest(".wide") ? PAPER_WIDE : PAPER;
      scale = Math.min(PAPER_SCALE, page.width / width, page.height / height);
    }
    place.style.width = `${width}px`;
    place.style.transform = scale < 1 ? `scale(${scale})` : "";
    box.style.height = `${Math.ceil(scale * height)}px`;
    box.style.overflowX = scale * width > box.clientWidth + 1 ? "auto" : "hidden"; // no scrollbar over the axis title
  }

  function draw(place, figure) {
    const { data, layout } = coloured(figure);
    if (!figures.has(place)) resized.observe(place.parentElement);
    figures.set(place, figure);
    Plotly.react(place, data, layout, config);
    fit(place);
  }

  function show(place) {
    near.unobserve(place);
    const shown = waiting.get(place);
    waiting.delete(place);
    shown?.();
  }

  // Calls `shown` once, when the place comes near.
  function whenNear(place, shown) {
    waiting.set(place, shown);
    near.observe(place);
  }

  function forget(place) {
    figures.delete(place);
    resized.unobserve(place.parentElement);
    Plotly.purge(place);
  }

  const drawAgain = () => figures.forEach((figure, place) => draw(place, figure));
  const near = new IntersectionObserver(
    (entries) => entries.forEach(({ isIntersecting, target }) => isIntersecting && show(target)),
    { rootMargin: AHEAD },
  );
  const resized = new ResizeObserver((entries) => {
    if ("print" in root.dataset) return;
    for (const { target } of entries) {
      if (target.clientWidth) fit(target.firstElementChild);
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
  addEventListener("beforeprint", () => {
    root.dataset.print = "";
    drawAgain();
    for (const place of [...waiting.keys()]) {
      if (place.dataset.figure && !place.closest("[hidden], details:not([open])")) show(place);
    }
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    drawAgain();
  });

  return { content, draw, forget, whenNear };
})();
