"""Each figure's main claim and its effect, its side claims, and the claims on complexity control."""
