"""PrOntoQA: true-or-false questions on an invented ontology, by the number of deduction steps."""
