"""Pictures of probes' results: one function draws one, from plain arrays and words."""
