"""The largest of two numbers: a task, a probe, a command, a view and an importer of it."""
