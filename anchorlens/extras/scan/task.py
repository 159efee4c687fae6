"""ScanTask: commands to action sequences, with composites of one command as OOD.

Source: figure 7A of Zhang et al., arXiv 2501.08537; SCAN and its splits come from Lake & Baroni, arXiv
1711.00350.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from anchorlens.configuration import frozen_dataclass, number
from anchorlens.extras.shared.split_task import at_random, in_rounds, split_rows
from anchorlens.extras.shared.word_presets import word_presets
from anchorlens.extras.shared.word_task import WordTask, word_metrics
from anchorlens.extras.shared.words import Examples, Vocabulary
from anchorlens.randomness import generator
from anchorlens.tasks import Metric

VERBS = ("walk", "look", "run", "jump")
DIRECTIONS = ("left", "right")
COMMAND_WORDS = (
    *("after", "and", "around", "jump", "left", "look", "opposite"),
    *("right", "run", "thrice", "turn", "twice", "walk"),
)
ACTIONS = ("I_JUMP", "I_LOOK", "I_RUN", "I_TURN_LEFT", "I_TURN_RIGHT", "I_WALK")
LONGEST = 9 + 48
"""The number of words of the longest command and of its action sequence together."""
COPIES = 0.1
"""The fraction of training examples that are copies of the bare command (its composites are OOD), as
published."""
_SIMPLE_SHARE = 0.2
METRICS = word_metrics(
    meanings=(
        "commands it was trained on",
        "held-out commands of the kinds that are trained",
        "commands that the split leaves out",
    ),
    asks=("every training command", "held-out commands", "left-out commands"),
)


@frozen_dataclass()
class ScanTask(WordTask):
    """The SCAN task, which maps a command such as `walk left twice and jump` to its actions.

    A model predicts the actions word by word. An answer is correct if all of its tokens are correct,
    including the end mark.

    Raises:
        ValueError: If a value is invalid. The message states the rule, the value and the remedy.

    Example:
        >>> task = ScanTask()
        >>> task.examples("ood").prompts[0], task.examples("ood").answers[0]
        ('turn left twice', 'I_TURN_LEFT I_TURN_LEFT')
        >>> {split: len(task.examples(split)) for split in ("train", "id", "ood")}
        {'train': 18702, 'id': 1000, 'ood': 1208}

    Source: arXiv 2501.08537, figure 7A. The grammar and the splits are from arXiv 1711.00350.
    """

    kind: ClassVar[str] = "scan"
    presets = word_presets("scan", d_vocab=23, n_ctx=59, n_samples=2222, n_paper=11_111)
    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    split: Literal["turn_left", "jump", "simple"] = "turn_left"
    """The commands that are never trained (OOD). With `turn_left` or `jump`, all commands that contain these
    words are held out, except the bare command. Copies of the bare command are a tenth of the training
    examples. With `simple`, a random fifth of all commands is held out as a control."""
    n_held_out: int = number(1000, minimum=1, maximum=5000)
    """The number of commands that are held out for the ID test, in addition to the OOD commands."""
    split_seed: int = number(0, minimum=0)
    """The seed of the held-out commands and of the `simple` split."""
    bos: bool = True
    """Whether every sequence begins with the token `<bos>`. Models from other projects may be trained without
    this token."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the special tokens, the 13 words of commands and the 6 actions."""
        return Vocabulary((*COMMAND_WORDS, *ACTIONS), self.bos)

    @property
    def seq_len(self) -> int:
        """The number of tokens of the longest example that a model reads, not counting the end mark."""
        return LONGEST + 1 + self.bos

    @cached_property
    def splits(self) -> Mapping[str, Examples]:
        """A map from `id`, `ood` and `train` to their examples, with each command once."""
        commands = np.array(list(all_commands()))
        if (bare := self.primitive) is None:
            left_out = at_random(len(commands), _SIMPLE_SHARE, self.split_seed)
        else:
            left_out = np.array([bare in command and command != bare for command in commands])
        rest = np.flatnonzero(~left_out & (commands != bare))
        held_out = generator(self.split_seed, "data", 2).permutation(rest)[: self.n_held_out]
        every = Examples(list(all_commands()), list(all_commands().values()))
        return {name: every[rows] for name, rows in split_rows(left_out, held_out).items()}

    @property
    def primitive(self) -> str | None:
        """The bare command of which training has extra copies, or `None` in the simple split."""
        return None if self.split == "simple" else self.split.replace("_", " ")

    def training_examples(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw `n` training examples.

        A tenth of the examples are copies of the primitive if the split has a primitive. All other examples
        are different commands in random order. Commands are repeated only if the split has fewer commands
        than are needed.
        """
        train = self.splits["train"]
        if self.primitive is None:
            return train[in_rounds(len(train), n, rng)]
        others = np.array([row for row, command in enumerate(train.prompts) if command != self.primitive])
        n_copies = round(COPIES * n)
        rows = others[in_rounds(len(others), n - n_copies, rng)]
        copies = np.full(n_copies, train.prompts.index(self.primitive))
        return train[rng.permutation(np.concatenate([rows, copies]))]

    def describe(self) -> str:
        """Describe the trained and the held-out commands in words."""
        n = {name: f"{len(examples):,}" for name, examples in self.splits.items()}
        left_out = f"every command that holds `{self.primitive}` but the bare one"
        copies = f", a tenth of the examples `{self.primitive}`"
        if self.primitive is None:
            left_out, copies = "a fifth of all commands, at random", ""
        return (
            "SCAN: the actions of a command, such as `jump left` -> `I_TURN_LEFT I_JUMP`, word by word.\n"
            f"Trained: {n['train']} commands{copies}. Held out (ID test): {n['id']} others, by seed.\n"
            f"Never seen (OOD test): {n['ood']} commands, {left_out}."
        )


@functools.cache
def all_commands() -> Mapping[str, str]:
    """Return a map from each of the 20,910 SCAN commands to its actions, in the order of the grammar.

    >>> all_commands()["look right twice after jump opposite left"]
    'I_TURN_LEFT I_TURN_LEFT I_JUMP I_TURN_RIGHT I_LOOK I_TURN_RIGHT I_LOOK'

    Source: the grammar of arXiv 1711.00350, appendix.
    """
    phrases: dict[str, tuple[str, ...]] = {verb: (f"I_{verb.upper()}",) for verb in VERBS}
    for verb in (*VERBS, "turn"):
        action = phrases.get(verb, ())
        for direction in DIRECTIONS:
            turn = (f"I_TURN_{direction.upper()}",)
            phrases[f"{verb} {direction}"] = turn + action
            phrases[f"{verb} opposite {direction}"] = turn + turn + action
            phrases[f"{verb} around {direction}"] = (turn + action) * 4
    repeated = {
        f"{phrase}{often}": actions * times
        for phrase, actions in phrases.items()
        for often, times in (("", 1), (" twice", 2), (" thrice", 3))
    }
    commands = dict(repeated)
    for first, done in repeated.items():
        for second, then in repeated.items():
            commands[f"{first} and {second}"] = done + then
            commands[f"{first} after {second}"] = then + done
    return {command: " ".join(actions) for command, actions in commands.items()}
