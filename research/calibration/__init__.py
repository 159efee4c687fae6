"""The parts of `research/calibrate.py`: the zoo, its readings, the fit and what it is worth."""
