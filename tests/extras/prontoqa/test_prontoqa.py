"""PrOntoQA: the generator by its rules and by the published samples, and what known answerers come to."""

import collections
import dataclasses
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorlens import PrOntoQATask
from anchorlens.configuration import field_types
from anchorlens.extras.prontoqa.ontology import FAMILIES, LONGEST_PROMPT, MOST_HOPS, balanced, official
from anchorlens.extras.prontoqa.reasoning import (
    by_chaining,
    by_degree,
    by_polarity,
    deduction,
    normalised,
    read_question,
)
from anchorlens.extras.shared.words import EOS, SEP
from anchorlens.randomness import generator
from anchorlens.tasks.registry import read_evaluation, read_task
from anchorlens.tasks.shared.batch import IGNORE

PUBLISHED = Path(__file__).parents[4] / "shared/data/prontoqa"
needs_files = pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no published samples at {PUBLISHED}")
MAKERS = {"official": official, "balanced": balanced}
EVERY = [(name, hops) for name, most in MOST_HOPS.items() for hops in range(1, most + 1)]
SMALL = PrOntoQATask(n_test=200)


def samples():
    """(number of hops, prompt, answer) of the 2,500 questions that the official generator made."""
    for hops in range(1, 6):
        with gzip.open(PUBLISHED / f"{hops}hop_random_seed20250115.json.gz", "rt") as file:
            for group in json.load(file).values():
                for one in group.values():
                    yield hops, normalised(f"{one['question']} {one['query']}"), one["answer"] == "True"


def answerer(says):
    """A function of tokens that says `true` where `says` holds of the prompt, and then ends."""
    words = SMALL.vocabulary
    said = {True: words.tokens("true")[0], False: words.tokens("false")[0]}

    def logits(tokens):
        found = torch.zeros(*tokens.shape, len(words))
        for row, sequence in enumerate(tokens.tolist()):
            at = sequence.index(SEP)
            found[row, at, said[bool(says(words.text(sequence[1:at])))]] = 1
            found[row, at + 1 :, EOS] = 1
        return found

    return logits


@needs_files
class TestPublished:
    def test_the_solver_answers_every_label(self):
        found = [by_chaining(prompt) == answer for _, prompt, answer in samples()]
        assert len(found) == 2500 and all(found)

    def test_the_deduction_is_the_published_chain_of_thought(self):
        found = []
        for hops in range(1, 6):
            with gzip.open(PUBLISHED / f"{hops}hop_random_seed20250115.json.gz", "rt") as file:
                ones = [one for group in json.load(file).values() for one in group.values()]
            for one in ones:
                ours = deduction(normalised(f"{one['question']} {one['query']}"))
                found.append(ours == normalised(" ".join(one["chain_of_thought"])))
        assert len(found) == 2500 and all(found)

    def test_and_so_does_the_degree_shortcut(self):
        found = [by_degree(prompt) == answer for _, prompt, answer in samples()]
        assert np.mean(found) == 1.0

    def test_logic_llm(self):
        with gzip.open(PUBLISHED / "logic_llm_dev.json.gz", "rt") as file:
            items = json.load(file)
        found = [
            (by_chaining(prompt) == answer, by_degree(prompt) == answer)
            for one in items
            for prompt, answer in [(normalised(f"{one['context']} {one['question']}"), one["answer"] == "A")]
        ]
        assert len(found) == 500 and np.all(found)

    def test_every_word_is_in_the_vocabulary_and_every_question_fits(self):
        for _, prompt, _ in samples():
            assert len(SMALL.vocabulary.tokens(prompt)) <= LONGEST_PROMPT

    @pytest.mark.parametrize("hops", range(1, 6))
    def test_ours_are_as_long(self, hops):
        rng = random.Random(0)
        theirs = [prompt.count(" .") - 1 for n, prompt, _ in samples() if n == hops]
        ours = [official(hops, rng).prompt.count(" .") - 1 for _ in range(2000)]
        assert abs(np.mean(theirs) - np.mean(ours)) < 4 * np.hypot(
            np.std(theirs) / 500**0.5, np.std(ours) / 2000**0.5
        )
        assert min(ours) >= min(theirs) - 2 and max(ours) <= 18


class TestGenerator:
    @pytest.mark.parametrize(("ontology", "hops"), EVERY)
    def test_the_solver_says_every_label_in_as_many_steps(self, ontology, hops):
        rng = random.Random(hops)
        for _ in range(200):
            item = MAKERS[ontology](hops, rng)
            assert by_chaining(item.prompt) == (item.answer == "true") and item.hops == hops
            assert steps_to(item.prompt) == hops

    @pytest.mark.parametrize(("ontology", "hops"), EVERY)
    def test_labels_are_even_and_polarity_says_little(self, ontology, hops):
        rng = random.Random(hops)
        items = [MAKERS[ontology](hops, rng) for _ in range(2000)]
        true = np.array([item.answer == "true" for item in items])
        assert abs(true.mean() - 0.5) < 0.03
        polarity = np.mean(
            [by_polarity(item.prompt) == label for item, label in zip(items, true, strict=True)]
        )
        assert abs(polarity - 0.5) < 0.06
        degree = np.mean([by_degree(item.prompt) == label for item, label in zip(items, true, strict=True)])
        assert degree == 1.0 if ontology == "official" else abs(degree - 0.5) < 0.03

    @pytest.mark.parametrize("order", ["postorder", "preorder", "random"])
    def test_the_order_of_the_rules(self, order):
        rng = random.Random(0)
        starts = []
        for _ in range(100):
            question = read_question(official(3, rng, order).prompt)
            parents = {r.subject: r.predicate for r in question.rules if r.predicate.endswith("pus")}
            (leaf,) = set(parents) - set(parents.values())
            subjects = [rule.subject for rule in question.rules if rule.subject in parents]
            starts.append(subjects.index(leaf) < subjects.index(list(chain(parents, leaf))[-2]))
        assert {"postorder": all(starts), "preorder": not any(starts), "random": 20 < sum(starts) < 80}[order]

    def test_no_concept_has_two_properties_of_a_family_and_a_balanced_one_uses_seven(self):
        rng = random.Random(0)
        family = {word: k for k, words in enumerate(FAMILIES) for word in words}
        for _ in range(200):
            question = read_question(balanced(3, rng).prompt)
            said = [rule.predicate for rule in question.rules if rule.predicate in family]
            assert len(question.rules) == 16 and len(said) == 8
            assert len({family[word] for word in said}) == 7
            (twice,) = [word for word, n in collections.Counter(said).items() if n == 2]
            assert twice == question.query.predicate

    def test_a_third_is_negated(self):
        rng = random.Random(0)
        rules = [r for _ in range(2000) for r in read_question(official(3, rng).prompt).rules]
        of_property = [rule.negated for rule in rules if not rule.predicate.endswith("pus")]
        assert 0.3 < np.mean(of_property) < 0.42  # a third of those drawn, more of those that are asked for


def chain(parents, leaf):
    """Concepts from a leaf to the root."""
    while leaf is not None:
        yield leaf
        leaf = parents.get(leaf)


def steps_to(prompt):
    """Rules that are applied, one after the other, until the property that is asked for is known."""
    question = read_question(prompt)
    at, rules = question.facts[0].predicate, question.rules
    for n in range(1, 10):
        if any(r.subject == at and r.predicate == question.query.predicate for r in rules):
            return n
        at = next(r.predicate for r in rules if r.subject == at and r.predicate.endswith("pus"))
    raise AssertionError(prompt)


class TestReading:
    @pytest.mark.parametrize(
        ("prompt", "message"),
        [
            ("max is a wumpus . max is small .", r"true or false.*got 'max is small'"),
            (
                "wumpuses fly . true or false : max is small .",
                "'X is Y', got 'wumpuses fly'",
            ),
        ],
    )
    def test_one_clear_error(self, prompt, message):
        with pytest.raises(ValueError, match=message.replace("(", "\\(")):
            read_question(prompt)

    def test_nothing_may_follow(self):
        assert by_chaining("wumpuses are small . max is a zumpus . true or false : max is small .") is None
        assert by_degree("max is a zumpus . true or false : max is not small .") is False


class TestTask:
    def test_tests_are_of_the_steps_that_they_say_and_never_trained(self):
        task = PrOntoQATask(least_hops=1, most_hops=2, n_test=100)
        for split, hops in (("id", {1, 2}), ("ood", {3, 4}), ("other", {1, 2})):
            assert {steps_to(prompt) for prompt in task.examples(split).prompts} == hops
        drawn = task.training_examples(500, generator(0, "data"))
        assert len(set(drawn.prompts)) == 500
        assert not set(drawn.prompts) & (set(task.examples("id").prompts) | set(task.examples("ood").prompts))
        assert {steps_to(prompt) for prompt in drawn.prompts} == {1, 2}

    @pytest.mark.parametrize("loss_on", ["label", "sequence"])
    def test_what_is_scored(self, loss_on):
        task = PrOntoQATask(loss_on=loss_on, n_test=20)
        batch = task.training_set(10, 0)
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            at = tokens.index(SEP)
            assert targets[at : at + 2] == [tokens[at + 1], EOS] and set(targets[at + 2 :]) <= {IGNORE}
            asked = tokens[1 : at + 1] if loss_on == "sequence" else [IGNORE] * at
            assert targets[:at] == asked
        alone = task.answers_alone(task.checked_training_set(batch))
        assert ((alone.targets != IGNORE).sum(dim=1) == 2).all()
        solver = answerer(by_chaining)
        assert task.measure(solver, batch)["train_accuracy"] == 1.0
        assert task.evaluate(solver, training_set=batch).measure("train").value == 1.0

    def test_a_deduction_stands_before_the_label(self):
        task = PrOntoQATask(says="deduction", ontology="official", most_hops=4, n_test=60)
        for split in ("id", "ood", "other"):
            examples = task.examples(split)
            for prompt, answer in zip(examples.prompts, examples.answers, strict=True):
                said, label = answer.rsplit(" ", 1)
                assert said == deduction(prompt) and label == ("true" if by_chaining(prompt) else "false")
                assert said.count(" .") == 1 + 2 * steps_to(prompt)
            assert task.vocabulary.length(examples).max() <= task.seq_len
        batch = task.training_set(20, 0)
        scored = task.vocabulary.text(batch.targets[0][batch.targets[0] != IGNORE].tolist())
        assert scored.startswith(scored.split()[0] + " is a") and scored.endswith(
            (" true <eos>", " false <eos>")
        )
        assert "the deduction and its label alone" in task.describe()

    def test_nothing_is_deduced_where_nothing_follows(self):
        with pytest.raises(ValueError, match="query or its opposite must follow"):
            deduction("wumpuses are small . max is a zumpus . true or false : max is small .")

    @pytest.mark.parametrize(
        ("says", "label", "id", "ood"),
        [(by_chaining, "Phase 3", 1.0, 1.0), (by_polarity, "undecided: training data unknown", 0.5, 0.5)],
    )
    def test_what_known_answerers_come_to(self, says, label, id, ood):
        found = SMALL.evaluate(answerer(says), max_train=100)
        assert found.phase.label == label
        assert found.measure("id").value == pytest.approx(id, abs=0.12)
        assert found.measure("ood").value == pytest.approx(ood, abs=0.12)
        assert found.measure("solver").value == 1 and abs(found.measure("degree").value - 0.5) < 0.12

    @pytest.mark.parametrize("says", ["label", "deduction"])
    def test_half_of_the_labels_are_right_by_chance(self, says):
        task = dataclasses.replace(SMALL, says=says)
        found = task.evaluate(answerer(by_polarity), training_set=task.training_set(20, 0))
        assert found.chance == (0.5 if says == "label" else 0.0)
        assert read_evaluation(found.to_dict()).phase == found.phase
        assert read_evaluation(found.to_dict()).chance == found.chance
        assert found.phase.cause == "underfit" and ("0.95" in found.phase.reason) == (says == "label")

    def test_an_answerer_by_the_shortcut_is_seen_through(self):
        task = dataclasses.replace(SMALL, ontology="official")
        found = task.evaluate(answerer(by_degree), max_train=100)
        assert found.phase.number == 3 and found.measure("degree").value == 1
        assert found.measure("other").value == pytest.approx(0.5, abs=0.12)
        (lines, _) = found.figure_specs
        assert list(lines.x) == [1, 2, 3, 4, 5] and lines.y["model"] == lines.y["degree"] == [1.0] * 5

    def test_it_says_what_it_is_and_travels_as_data(self):
        task = PrOntoQATask(ontology="official", most_hops=4, order="preorder", split_seed=3)
        assert "5 steps" in task.describe() and "a shortcut answers it" in task.describe()
        assert read_task(task.to_dict()) == task and set(task.to_dict()) == {
            "kind",
            *field_types(PrOntoQATask),
        }

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"most_hops": 0}, "most_hops must be an integer >= 1"),
            ({"most_hops": 4}, "most_hops must be an integer >= 1 and <= 3, got 4"),
            ({"ontology": "official", "most_hops": 5}, "most_hops must be an integer >= 1 and <= 4, got 5"),
            ({"least_hops": 3, "most_hops": 2}, "least_hops must be an integer >= 1 and <= 2, got 3"),
            ({"ontology": "true"}, "ontology must be one of official, balanced"),
        ],
    )
    def test_bad_input_gets_one_error(self, fields, message):
        with pytest.raises(ValueError, match=message):
            PrOntoQATask(**fields)


@pytest.mark.parametrize("hops", [0, -1, 5.0, True, 6, 10])
def test_a_generator_asked_for_other_steps_is_one_error(hops):
    with pytest.raises(ValueError, match="hops must be"):
        official(hops, random.Random(0))
    with pytest.raises(ValueError, match="hops must be"):
        balanced(hops, random.Random(0))


def test_a_generator_asked_for_another_order_is_one_error():
    with pytest.raises(ValueError, match=r"order.*preorder.*got 'sideways'"):
        official(1, random.Random(0), "sideways")
