"""The summary: one page for a paper or a slide, drawn without a browser."""
