for (const place of document.querySelectorAll("[data-figure]")) {
  plots.whenNear(place, () => plots.draw(place, plots.content(place.dataset.figure)));
}
for (const view of document.querySelectorAll("[data-heads]")) {
  const heads = () => CircuitsVis.render(view.id, CircuitsVis.AttentionHeads, plots.content(view.dataset.heads));
  plots.whenNear(view, heads);
}
