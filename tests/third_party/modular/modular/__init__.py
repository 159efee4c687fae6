"""Modular addition, and a probe of it."""
