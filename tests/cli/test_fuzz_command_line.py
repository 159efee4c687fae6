import collections

import pytest
from fuzz_command_line import COMMANDS, fuzz


@pytest.mark.needs()
def test_hostile_values_of_every_option_are_refused_in_a_few_lines():
    outcomes = collections.Counter(command for command, _ in fuzz(200, seed=0))
    assert sum(outcomes.values()) == 200 and outcomes.keys() == COMMANDS.keys() - {"demo"}
