"""Products around the core, a folder each: delete one, and everything else works."""
