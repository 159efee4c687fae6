"""Few questions for every model, since each is asked on several devices."""

import inspect

import pytest


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    from anchorlens.extras.concept_graphs import task as concept_graphs
    from anchorlens.tasks.shared import evaluator

    monkeypatch.setattr(evaluator, "_A_FEW_MORE", 2)  # tokens of an answer in words, before it is cut off
    monkeypatch.setattr(concept_graphs, "_BN_BATCHES", 1)
    monkeypatch.setattr(concept_graphs, "_BN_BATCH", 16)
    evaluate = inspect.unwrap(concept_graphs.ConceptGraphsTask.evaluate)  # behind the check of its shapes
    monkeypatch.setitem(evaluate.__kwdefaults__, "n_samples", 2)
    monkeypatch.setattr(concept_graphs, "QUICKLY", 2)
