"""The page of public files of modular arithmetic is what the command writes."""

from pathlib import Path

import pytest

from grokking import readings

PUBLIC = Path(__file__).parents[3] / "shared/data/grokking"


@pytest.mark.skipif(not PUBLIC.exists(), reason=f"{PUBLIC} is not there")
def test_the_page_is_what_the_files_give(tmp_path):
    assert readings.PAGE.read_text(encoding="utf-8") == readings.page(PUBLIC) + "\n"


def test_another_file_is_refused(tmp_path):
    run = readings.RUNS[0]
    path = tmp_path / run.file
    path.parent.mkdir()
    path.write_bytes(b"{}")
    with pytest.raises(ValueError):
        readings.measured(tmp_path, run)


def test_the_share_of_logits_that_know_their_answer():
    import numpy as np

    answers = np.array([0, 1, 2, 0])
    assert readings.between(np.eye(3)[answers], answers) == 1
