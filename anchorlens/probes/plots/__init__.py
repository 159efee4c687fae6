"""Pictures of probe results: each function draws one picture from plain arrays and texts."""
