"""K models of equal shape in one set of tensors: their layout and their forward pass, with torch alone."""
