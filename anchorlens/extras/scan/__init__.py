"""SCAN, arXiv 2501.08537 figure 7A."""
