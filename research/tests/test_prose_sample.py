"""The sample of sentences: what counts as a sentence, and that every source gives its part."""

from collections import Counter

import prose_sample as command

PAGE = """# A heading of five words here

One sentence with a [link](page.md#part) in it. Another one, of `code` and words!

| a | table | of | five | words |
|---|---|---|---|---|

```console
$ a command of five words
```

$$
f(x; a, b) = g(x; a) + g(x; b)
$$

- A bullet has a sentence of its own.

  ~~~sh
  a command within a bullet here
  ~~~

Smith et al. Write one sentence of `<sep>` marks. anchorlens begins the next sentence here.

- Too short a line.
"""


def test_sentences_are_prose():
    assert list(command.sentences(PAGE)) == [
        "One sentence with a link in it.",
        "Another one, of `code` and words!",
        "A bullet has a sentence of its own.",
        "Smith et al. Write one sentence of `<sep>` marks.",
        "anchorlens begins the next sentence here.",
    ]


def test_every_source_gives_its_part_and_the_draw_is_the_same_each_time():
    found = command.sample(20, seed=1)
    assert Counter(source for source, _, _ in found) == {
        "page": 4, "tutorial": 4, "caption": 3, "help": 3, "error": 3, "docstring": 3,
    }  # fmt: skip
    assert len({sentence for *_, sentence in found}) == 20 and found == command.sample(20, seed=1)
    assert found != command.sample(20, seed=2)


def test_help_has_neither_examples_nor_names_of_options():
    found = [text for _, text in command.helps()]
    assert "Draw the phase diagram of a sweep as a page that works offline." in found
    assert not [text for text in found if text.startswith(("--", "anchorlens ", "Usage"))]
