for (const place of document.querySelectorAll("[data-figure]")) {
  plots.whenNear(place, () => plots.draw(place, plots.content(place.dataset.figure)));
}

// What is folded is not printed: this unfolds all of it, and folds it again.
document.getElementById("unfold")?.addEventListener("click", ({ target }) => {
  const details = [...document.querySelectorAll("details")];
  const open = !details.every((one) => one.open);
  for (const one of details) one.open = open;
  target.textContent = open ? "Collapse" : "Expand all (for printing)";
});
