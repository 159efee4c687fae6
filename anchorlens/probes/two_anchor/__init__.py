"""Probes of the papers' two-anchor task."""
