"""The operations: every answer by its formula, one pair at a time."""

import itertools

import numpy as np
import pytest

from anchorlens.extras.grokking.operations import OPERATIONS, answers, is_prime

FORMULAS = {
    "add": lambda a, b, p: (a + b) % p,
    "subtract": lambda a, b, p: (a - b) % p,
    "multiply": lambda a, b, p: a * b % p,
    "divide": lambda a, b, p: next((c for c in range(p) if c * b % p == a), -1) if b else -1,
    "x2xyy2": lambda a, b, p: (a * a + a * b + b * b) % p,
    "x3xy": lambda a, b, p: (a * a * a + a * b) % p,
}


@pytest.mark.parametrize("operation", FORMULAS)
@pytest.mark.parametrize("p", [2, 3, 7, 13])
def test_every_answer_follows_the_formula(operation, p):
    formula = FORMULAS[operation]
    expected = [formula(a, b, p) for a in range(p) for b in range(p)]
    assert answers(operation, p).tolist() == expected


@pytest.mark.parametrize("n", [3, 4])
def test_permutations_are_composed_in_lexicographic_order(n):
    group = list(itertools.permutations(range(n)))
    expected = [group.index(tuple(a[b[i]] for i in range(n))) for a in group for b in group]
    assert answers("permutations", len(group)).tolist() == expected


def test_the_table_of_s5_is_a_latin_square():
    table = answers("permutations", 120).reshape(120, 120)
    assert (np.sort(table, axis=0) == np.arange(120)[:, None]).all()
    assert (np.sort(table, axis=1) == np.arange(120)).all()
    assert not (table == table.T).all()


def test_random_answers_depend_on_the_seed_alone():
    assert (answers("random", 59, 3) == answers("random", 59, 3)).all()
    differ = (answers("random", 59, 3) != answers("random", 59, 4)).mean()
    assert differ == pytest.approx(58 / 59, abs=0.01)


@pytest.mark.parametrize(
    "text", ["0 1 2; 1 2 0; 2 0 1", "0,1,2\n1,2,0\n2,0,1\n", "0, 1, 2; 1, 2, 0; 2, 0, 1;"]
)
def test_a_table_gives_any_group(text):
    assert answers("table", 3, table=text).tolist() == answers("add", 3).tolist()


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "0 rows of 0 numbers"),
        ("0 1 2; 1 2 0", "2 rows of 3 numbers"),
        ("0 1 2; 1 2; 2 0 1", "3 rows of 2 or 3 numbers"),
        ("0 1 2; 1 2 3; 2 0 1", "3 rows of 3 numbers with '3'"),
        ("0 1 2; 1 2 -1; 2 0 1", "3 rows of 3 numbers with '-1'"),
        ("0 1 2; 1 2 x; 2 0 1", "3 rows of 3 numbers with 'x'"),
    ],
)
def test_a_table_that_is_no_square_of_numbers_below_p_is_refused(text, got):
    with pytest.raises(ValueError, match=f"`table`.*3 rows.*below 3, got {got}"):
        answers("table", 3, table=text)


def test_division_needs_a_prime_and_permutations_a_factorial():
    with pytest.raises(ValueError, match=r"modulus.*prime.*divide`, got 9"):
        answers("divide", 9)
    with pytest.raises(ValueError, match=r"modulus.*6, 24 or 120.*permutations"):
        answers("permutations", 59)


def test_primes():
    assert [n for n in range(2, 30) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_what_commutes():
    for operation in set(OPERATIONS) - {"table", "permutations", "permutations_reversed"}:
        table = answers(operation, 7).reshape(7, 7)
        assert (operation in ("add", "multiply", "x2xyy2")) == bool((table == table.T).all())


def test_the_reversed_product_has_the_answers_of_the_reversed_pairs():
    table, turned = (answers(name, 6).reshape(6, 6) for name in ("permutations", "permutations_reversed"))
    assert (turned == table.T).all() and (turned != table).any()
