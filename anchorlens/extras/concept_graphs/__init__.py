"""Concept Graphs: images of shapes of two sizes and colours; half of the combinations are never trained."""
