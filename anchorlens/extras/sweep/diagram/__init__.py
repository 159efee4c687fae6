"""The phase diagram: one HTML page about a sweep."""
