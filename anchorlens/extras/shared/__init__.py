"""Code that several products share: bases and presets of tasks, the cache of downloads, scratch folders."""
