"""The report: one HTML page about one or more models, which needs no network."""
