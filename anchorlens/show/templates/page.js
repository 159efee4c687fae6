for (const place of document.querySelectorAll("[data-figure]")) {
  plots.whenNear(place, () => plots.draw(place, plots.content(place.dataset.figure)));
}
for (const view of document.querySelectorAll("[data-heads]")) {
  const heads = () => CircuitsVis.render(view.id, CircuitsVis.AttentionHeads, plots.content(view.dataset.heads));
  plots.whenNear(view, heads);
}

// What is folded is not printed: this unfolds all of it, and folds it again.
document.getElementById("unfold")?.addEventListener("click", ({ target }) => {
  const details = [...document.querySelectorAll("details")];
  const open = !details.every((one) => one.open);
  for (const one of details) one.open = open;
  target.textContent = open ? "Collapse" : "Expand all (for printing)";
});
