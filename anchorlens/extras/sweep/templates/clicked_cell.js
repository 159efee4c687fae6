// The report of a run, drawn from the JSON that `run_content` gives. A text becomes a text, never markup.
const reportOf = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const { phases, readings } = plots.content("shared");

  function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.flat().filter((child) => child != null));
    return made;
  }
  const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);
  const colourOf = (label) => phases.find((phase) => phase.label === label)?.colour ?? "currentColor";

  // `rows` hold a head and cells, each a text, elements, or its whole `td`; `numbers` are the columns of numbers,
  // `names` what stands before a cell where there is no room for columns (parts.css).
  function table(kind, caption, columns, rows, { numbers = [1], names = [] } = {}) {
    const options = (k) => (numbers.includes(k) ? { class: "al-number" } : {});
    const cell = (content, k) => content instanceof HTMLTableCellElement ? content :
      html("td", { role: "cell", ...options(k), ...(names[k] ? { "data-name": names[k] } : {}) }, content);
    const head = columns.map((text, k) => html("th", { scope: "col", role: "columnheader", ...options(k) }, text));
    const body = rows.map(([first, ...others]) => html("tr", { role: "row" },
      html("th", { scope: "row", role: "rowheader" }, first), others.map((content, k) => cell(content, k + 1))));
    return html("div", { class: "al-scroll al-stacks" },
      html("table", { class: `al-table ${kind}`, role: "table" }, caption && html("caption", {}, caption),
        html("thead", { role: "rowgroup" }, html("tr", { role: "row" }, head)), html("tbody", { role: "rowgroup" }, body)));
  }
  const explained = (text, meaning, kind = "span") => [
    html("span", { class: "al-meaning" }, text), html(kind, kind === "span" ? { class: "meaning" } : {}, meaning)];

  const card = (title, { label, colour, gloss, reasons }) =>
    html("div", { class: "al-card al-phase", style: `--phase: ${colour}` },
      html("div", { class: "al-eyebrow" }, title), html("div", { class: "al-label" }, label),
      html("div", { class: "al-gloss" }, gloss), reasons.map((text) => html("div", { class: "al-reason" }, text)));

  const warnings = (name, texts) => texts.length === 0 ? null :
    html("ul", { class: "al-warnings" }, texts.map((text) => html("li", {}, html("strong", {}, `${name}: `), text)));

  function bar(label, share) {
    const rect = (options) => svg("rect", { height: 12, rx: 3, ...options });
    return html("td", { class: "al-bar", "aria-hidden": true },
      svg("svg", { class: "al-share", width: "100%", height: 12 },
        rect({ width: "100%", fill: "currentColor", opacity: 0.1 }), rect({ width: `${100 * share}%`, fill: colourOf(label) })));
  }

  function probabilities(shares) { // a text where there are none
    if (typeof shares === "string") return html("p", { class: "al-none" }, `No probabilities: ${shares}`);
    const decoding = shares[0].length > 3;
    const columns = ["", "By the probes", "", ...(decoding ? ["By decoding"] : [])];
    const rows = shares.map(([label, share, ...texts]) => [label, bar(label, share), ...texts]);
    return table("al-bars", "Probability of each phase", columns, rows, { numbers: [2, 3] });
  }

  // Where a value lies among the ranges of the phases, 0..100: the same drawing as in parts.html.
  function rangeBar({ ranges }, value, { bands, at }) {
    const across = (place) => 60 + 1.6 * place;
    const words = `value ${value}${ranges}`;
    return svg("svg", { class: "al-range", viewBox: "0 0 224 62", width: 224, height: 62, role: "img", "aria-label": words },
      svg("use", { href: "#range-ground" }),
      bands.map(([start, width], k) => start == null ? null :
        svg("rect", { x: across(start), y: 9.5 + 13 * k, width: 1.6 * width, height: 8, rx: 2, fill: phases[k].colour })),
      at == null ? null : svg("path", { d: `M${across(at)} 5 v56`, stroke: "currentColor", "stroke-width": 1.6 }),
      at == null ? null : svg("path", { d: `M${across(at) - 4} 0 h8 l-4 6 z`, fill: "currentColor" }));
  }

  const dot = (colour) => svg("svg", { class: "al-dot", width: 10, height: 10, "aria-hidden": true },
    svg("rect", { width: 10, height: 10, rx: 2, fill: colour }));
  const changes = (texts) => texts.length === 0 ? "none" : texts.flatMap(([label, factor], k) => {
    const short = phases.find((phase) => phase.label === label)?.short ?? label;
    const line = html("span", { class: "al-change" }, dot(colourOf(label)), short, factor && `: ${factor}`);
    return k ? [html("br"), line] : [line];
  });

  function evidence(taken, calibrated) {
    if (taken.length === 0) return html("p", { class: "al-none" }, "No reading could be taken.");
    const head = (k) => explained(readings[k].meaning, readings[k].reading, "code");
    if (!calibrated) {
      const caption = "Readings of the weights; no phase was calibrated for this task";
      return table("", caption, ["Reading", "Value"], taken.map(([k, value]) => [head(k), value]));
    }
    const caption = "Evidence of the verdict by the probes: the line marks the value, the bands where the middle 80 % of the checkpoints of each phase or solution lie";
    const columns = ["Reading", "Value", "Among the phases", "Raises the odds of", "Lowers those of"];
    const rows = taken.map(([k, value, place, raised, lowered]) =>
      [head(k), value, place ? rangeBar(readings[k], value, place) : readings[k].ranges.replace(/^; /, ""), changes(raised), changes(lowered)]);
    return table("al-evidence", caption, columns, rows, { names: [null, "Value", null, "Raises", "Lowers"] });
  }

  function verdictOf({ verdict, report, command, weights, n_lines }) {
    const { behaviour, by_probes, agreement, explanation, accuracies } = verdict;
    const whole = ["The whole report", ", with the pictures of every probe"];
    const label = `Training curve of ${n_lines} log lines: accuracies and loss against optimizer steps`;
    return [
      html("div", { class: "al-verdict" }, card("By the probes", by_probes),
        html("div", { class: "al-sign", role: "img", "aria-label": agreement.sentence }, agreement.sign),
        card("By behaviour", behaviour)),
      html("p", { class: "al-agreement" },
        explanation.startsWith(agreement.sentence) ? null : html("strong", {}, `${agreement.sentence}. `), explanation),
      warnings("Warning", verdict.warnings),
      report && html("p", {}, html("a", { href: report }, whole[0]), whole[1]),
      command && html("p", {}, ...whole, ": ", html("code", { class: "command" }, command)),
      html("h3", {}, "Accuracies"),
      table("", accuracies.title, accuracies.columns,
        accuracies.rows.map(([name, ...others]) => [explained(name, others.pop()), ...others]), { numbers: [1, 2, 3] }),
      html("h3", {}, "Training"),
      n_lines
        ? html("div", { class: "plot-box", tabindex: 0, role: "group", "aria-label": "Training curve, picture" },
          html("div", { class: "plot", "data-curve": "", role: "img", "aria-label": label }))
        : html("p", { class: "refusal" }, "Its log (log.jsonl) is not there."),
      html("h3", {}, "Evidence of the verdict by the probes"),
      probabilities(verdict.probabilities), evidence(verdict.evidence, typeof verdict.probabilities !== "string"),
      ...(weights.length ? [html("h3", {}, "Weights"),
        table("narrow", "", ["Reading", "Value"], weights.map(([name, value]) => [html("code", {}, name), value]))] : []),
    ];
  }

  return (run) => [
    html("p", { class: "al-eyebrow" }, `Cell ${run.id}`), html("h2", { tabindex: -1 }, run.name),
    html("p", { class: "facts" }, run.facts), warnings("Error", run.error ? [run.error] : []),
    run.details && html("details", {}, html("summary", {}, "Traceback"), html("pre", {}, run.details)),
    ...(run.verdict ? verdictOf(run) : []),
  ].filter((part) => part);
})();
