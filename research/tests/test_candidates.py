"""`research/candidates.py`: what enters the fit is what helps on tasks that the fit has not seen."""

import numpy as np
import pandas as pd

import candidates
from anchorlens.verdict.readings import Reading
from calibration.runs import FITTED
from zoo import TABLE


def reading(field):
    return Reading("candidate", field, "of a test", {"composes": 1})


def test_what_tells_the_answer_enters_and_noise_does_not():
    table = pd.read_parquet(TABLE)
    rows = table[table["group"].isin(FITTED) & (table["moment"] == 1) & (table["regime"] == "reasoning")]
    rows = rows.reset_index(drop=True)
    random = np.random.default_rng(0)
    rows["candidate.accuracy"] = rows["ood"] + 0.1 * random.standard_normal(len(rows))
    rows["candidate.noise"] = random.standard_normal(len(rows))
    some = candidates.BY_PROBES[:4]
    cheat, noise = (
        candidates.gain(rows, "composes", [reading(field)], some) for field in ("accuracy", "noise")
    )
    assert cheat.enters and cheat.after > 0.95 and 0 < cheat.low < cheat.after - cheat.before < cheat.high
    assert not noise.enters and noise.before == cheat.before
