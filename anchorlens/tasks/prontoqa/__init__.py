"""True or false: facts of an invented ontology that follow in so many steps."""
