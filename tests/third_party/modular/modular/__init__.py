"""Modular addition: a task, a probe, a command, a view and an importer of it."""
