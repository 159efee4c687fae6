"""Images of a shape of some size and colour, of which half of the combinations are never trained."""
