"""Pages and docstrings have short sentences and plain words, and one script says where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose
from tests.prose import MAX_WORDS, docstrings, length, main, page

LONG = " ".join(["word"] * (MAX_WORDS + 1))

PAGE = f"""\
# A heading of any length: {LONG}

The first sentence
ends on its second line. The second, e.g. this one, has
[a link](https://example.com/{LONG.replace(" ", "-")}) and `inline code of {LONG}`!

- An item without a full stop
- `code` begins another. kube-scheduler begins its second sentence.

| column | **another** |
|---|---|
| a cell | one sentence (in brackets.) Two. |

```console
$ told {LONG}
```
The last.
"""


def test_a_page_is_cut_into_the_sentences_of_paragraphs_items_and_cells() -> None:
    """Headings, code blocks and targets of links are left out, and inline code is one word."""
    assert page("page.md", PAGE).sentences == (
        "The first sentence ends on its second line.",
        "The second, e.g. this one, has a link and CODE!",
        "An item without a full stop",
        "CODE begins another.",
        "kube-scheduler begins its second sentence.",
        "column",
        "another",
        "a cell",
        "one sentence (in brackets.",
        "Two.",
        "The last.",
    )


def test_the_words_of_a_page_are_those_of_wc() -> None:
    """Code blocks and tables count: they are read, too."""
    assert page("page.md", PAGE).words == len(PAGE.split())


def test_a_dash_is_no_word() -> None:
    """Nor are arrows and signs."""
    assert length("one – two → 3 = three-fold CODE") == 5


@pytest.mark.parametrize(("words", "is_fault"), [(MAX_WORDS, False), (MAX_WORDS + 1, True)])
def test_a_sentence_has_at_most_25_words(words: int, is_fault: bool) -> None:
    """The fault names the page, the number of words and the sentence."""
    sentence = " ".join(["word"] * words) + "."
    assert page("page.md", f"Short. {sentence} Short.").faults == (
        [f"page.md: {words} words: {sentence}"] if is_fault else []
    )


@pytest.mark.parametrize("words", ["Whoever", "told", "pods to come", "a closed node", "asks for links"])
def test_words_that_have_a_plainer_name_are_faults(words: str) -> None:
    """In prose alone: in code they may be names."""
    (fault,) = page("page.md", f"Here stands {words} in a text.").faults
    assert fault.endswith(f"Here stands {words} in a text.")
    assert (
        page("page.md", f"Here stands `{words}` in a text, [and in a target](#{words.replace(' ', '-')}).").faults == []
    )


@pytest.mark.parametrize("words", ["besides", "a fold", "disclosed", "the GPU is quarantined"])
def test_words_that_only_look_like_them_are_none(words: str) -> None:
    """Banned are whole words."""
    assert page("page.md", f"Here stands {words} in a text.").faults == []


MODULE = '''\
"""Do one thing.

A table and a tree:

Tree
├── Leaf    it ends here
└── Twig    it ends
            there
"""


def public(values):
    """Return them.

    >>> public("a doctest with >>> and words")
    'is left out'

    Args:
        values: The first.
            It goes on.
        more: The second.
    """


class _Private:
    attribute: int
    """One of its attributes."""
'''


def test_docstrings_of_all_objects_are_read() -> None:
    """Entries of `Args:` and of trees stand alone, and doctests are left out."""
    assert {text.name: text.sentences for text in docstrings("module.py", MODULE)} == {
        "module.py:1": (
            "Do one thing.",
            "A table and a tree:",
            "Tree",
            "Leaf    it ends here",
            "Twig    it ends there",
        ),
        "module.py:13": ("Return them.", "Args:", "values: The first.", "It goes on.", "more: The second."),
        "module.py:27": ("One of its attributes.",),
    }


def test_only_the_length_counts_in_docstrings() -> None:
    """Their words are a matter of review."""
    (text,) = docstrings("module.py", f'"""Told. {LONG}."""')
    assert text.faults == [f"module.py:1: {MAX_WORDS + 1} words: {LONG}."]


def test_the_command_prints_each_page_and_fails_for_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without faults it ends with 0."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "good.md").write_text("Two words.\n\nFour words are here.\n")
    (tmp_path / "bad.md").write_text("It is told.\n")
    assert main([str(tmp_path / "good.md")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["6", "3", "4", "good.md"]
    assert main([str(tmp_path / "good.md"), str(tmp_path / "bad.md")]) == 1
    assert "bad.md: 'told': It is told." in capsys.readouterr().out


def test_all_are_the_pages_and_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other files have readers of their own."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    for name in (
        "README.md",
        "docs/how-to/install.md",
        "docs/index.md",
        "manifests/chart/README.md",
        "tests/golden/b.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Words.\n")
    for name in ("agent/a.py", "tests/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""Words."""\n')
    assert main(["--all"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in printed[1:-1]] == [
        "README.md",
        "docs/how-to/install.md",
        "docs/index.md",
        "manifests/chart/README.md",
    ]
    assert printed[-1] == "4 pages, 1 docstrings, 0 faults"
