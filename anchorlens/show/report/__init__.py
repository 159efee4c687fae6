"""The report, which is one HTML page about one or more models and works offline."""
