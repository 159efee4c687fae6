"""Modular arithmetic: its task, its files, and what a model's answers are made of."""
