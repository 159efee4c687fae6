"""Few questions for every model, since each is asked on several devices."""

import pytest
from few_questions import asked_less, draw_little


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    from anchorlens.tasks.shared import evaluator

    monkeypatch.setattr(evaluator, "_A_FEW_MORE", 2)  # tokens of an answer in words, before it is cut off
    draw_little(monkeypatch)
    with asked_less():
        yield
