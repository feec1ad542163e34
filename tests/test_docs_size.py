"""The documentation stays short: words are counted per page, and no page has more than its budget."""

from __future__ import annotations

from pathlib import Path

from tests import docs_size


def test_words_and_shared_runs_are_counted_without_comments(tmp_path: Path) -> None:
    both = "one two three four five six seven eight nine ten"
    pages = {
        "README.md": f"# A\n<!-- not a word -->\n{both} eleven\n",
        "docs/index.md": f"B. {both.title()}, eleven; twelve",
        "docs/methods/mask.md": "nothing that another page says",
        "packages/cleaner-sandbox/README.md": "# C",
        "src/note.md": "not documentation",
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = docs_size.measure(tmp_path)
    assert found == {
        "words": 13 + 13 + 5 + 2,
        "pages": {
            "README.md": 13,
            "docs/index.md": 13,
            "docs/methods/mask.md": 5,
            "packages/cleaner-sandbox/README.md": 2,
        },
        "shared": 2,
        "shared_by": {"README.md and docs/index.md": 2},
    }
    most = {"README.md": 12, docs_size.UNLISTED: 5, "docs/index.md": 13, "total": 32, "shared": 1}
    assert docs_size.over(found, most) == [
        "README.md: 13 words of 12",
        "total: 33 words of 32",
        "shared: 2 runs of 10 words, of 1: ['README.md and docs/index.md']",
    ]


def test_no_page_has_more_words_than_its_budget() -> None:
    most = docs_size.budget()
    size = docs_size.measure()
    assert not docs_size.over(size, most)
    gone = most.keys() - size["pages"].keys() - {"total", "shared", docs_size.UNLISTED}
    assert not gone, "pages of the budget that are gone"
