"""Lists that are too long: told by a look at the text, before anything is built of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.formats.limits import NODES_MAX
from phalanx.cluster.formats.native import read_cluster
from phalanx.document import DocumentError, Limits, length, read_document
from phalanx.document.length import Length, too_long

NODE = "{gpus: 8, gpu_type: H100, rack: r0}"


def test_a_list_of_too_many_nodes_is_refused_with_file_key_count_and_limit_and_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yaml, "parse", None)
    text = "version: 1\nnodes:\n" + f"  - {NODE}\n" * (NODES_MAX + 1)
    with pytest.raises(DocumentError) as caught:
        read_cluster(text, "big.yaml")
    assert str(caught.value) == (
        f"big.yaml:2: key 'nodes': expected at most {NODES_MAX} items in a list, got {NODES_MAX + 1}"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nodes:\n- a\n- b\n- c\nname: x\n", Length(1, "nodes", 3)),
        ("name: x\nnodes:\n  - a: 1\n    b: 2\n  -\n    a: 1\n\n# why\n  - c\n", Length(2, "nodes", 3)),
        ("a:\n  - [x]\n  - [x]\nb:\n  - x\n  - x\n", None),
        ("a:\n  - t:\n      - x\n      - x\n  - t:\n      - x\n      - x\n", None),
        ("a:\n  b:\n  - x\n  - x\n  - x\n  c: 1\n", Length(2, "b", 3)),
        ("- x\n- x\n- x\n", Length(1, "", 3)),
        ('{"name": "a, [b, c, d", "nodes": [1, 2, {"a": [1, 2]}]}', Length(1, "nodes", 3)),
        ('{"name": "a \\" [1,1,1,1]",\n "nodes": [\n1, 2]}', None),
        ('{"a": 1, "b": 2, "c": 3, "d": 4}', None),
        ('{"nodes": [1, 2, 3, 4', Length(1, "nodes", 4)),
    ],
)
def test_items_are_counted_list_by_list(text: str, found: Length | None) -> None:
    assert too_long(text, 2) == found


def test_a_short_text_is_not_looked_at() -> None:
    assert too_long("- a\n- b\n- c\n", 1_000) is None


def test_a_text_that_goes_on_and_on_is_not_counted_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "TOKENS_MAX", 10)
    assert too_long("[" + "0," * 100, 5) == Length(1, "", 10, is_all=False)
    with pytest.raises(DocumentError, match="expected at most 5 items in a list, got at least 10"):
        read_document("[" + "0," * 100, "f.json", Limits(text=1_000, values=500, items=5))


@pytest.mark.parametrize("text", ['{"a": ["' + '\\"' * 50_000, "[" + "a" * 100_000, "[" + '""' * 50_000])
def test_what_never_ends_is_looked_at_once(text: str) -> None:
    assert too_long(text, 100) is None


trees = st.recursive(
    st.integers(0, 9) | st.text("ab[]{},:\"'-#\\", max_size=6),
    lambda part: st.lists(part, max_size=8) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), part, max_size=4),
    max_leaves=40,
)


def lists_of(tree: Any) -> list[int]:
    """The lengths of all lists of a tree."""
    if isinstance(tree, dict):
        return [each for part in tree.values() for each in lists_of(part)]
    return [len(tree), *(each for part in tree for each in lists_of(part))] if isinstance(tree, list) else []


@given(trees.filter(lambda tree: isinstance(tree, list | dict)), st.integers(1, 7), st.sampled_from((None, 1)))
def test_in_json_a_list_is_found_if_and_only_if_there_is_one(tree: Any, items_max: int, indent: int | None) -> None:
    found = too_long(json.dumps(tree, indent=indent), items_max)
    longer = [count for count in lists_of(tree) if count > items_max]
    assert (found.items in longer) if found is not None else not longer


@given(trees.filter(lambda tree: isinstance(tree, list | dict)), st.integers(1, 7))
def test_in_blocks_no_list_is_counted_longer_than_the_longest_there_is(tree: Any, items_max: int) -> None:
    text = yaml.safe_dump(tree, width=10_000)
    found = too_long(text, items_max) if text[0] not in "[{" else None
    assert found is None or found.items <= max(lists_of(tree))
