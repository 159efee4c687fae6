import collections

import pytest
from fuzz_command_line import COMMANDS, fuzz


@pytest.mark.needs()
@pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_hostile_values_of_every_option_are_refused_in_a_few_lines(n):
    outcomes = collections.Counter(command for command, _ in fuzz(n, seed=0))
    assert sum(outcomes.values()) == n and (outcomes.keys() == COMMANDS.keys() - {"demo"} or n < 200)
