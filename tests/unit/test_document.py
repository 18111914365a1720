"""Documents: every value knows its line, and what cannot be read is one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from phalanx.document import DocumentError, Field, Limits, decode, read_document, tree
from phalanx.errors import PhalanxError

LIMITS = Limits(text=10_000, values=500, depth=8)


@pytest.fixture(params=["fast", "plain"], autouse=True)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser in C is not on every machine; both must read alike."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if request.param == "fast" else yaml.SafeLoader
    monkeypatch.setattr(tree, "_LOADER", loader)


def read(text: str) -> Field:
    return read_document(text, "f.yaml", LIMITS)


def value(text: str) -> Field:
    return read(f"key: {text}").mapping(["key"])["key"]


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(DocumentError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_error_names_file_line_key_and_what_was_expected() -> None:
    gang = read("name: x\ngang:\n  - {gpus: 8}\n  - {gpus: -3}\n").mapping(["name", "gang"])["gang"]
    gpus = gang.items(1, 9)[1].mapping(["gpus"])["gpus"]
    assert error_of(lambda: gpus.integer(0, 1024)) == (
        "f.yaml:4: key 'gang[1].gpus': expected a whole number from 0 to 1024, got -3"
    )


def test_an_error_can_be_taken_apart_and_ends_a_program_with_1() -> None:
    with pytest.raises(PhalanxError) as caught:
        read("a: 1\nb: x").mapping(["a", "b"])["b"].boolean()
    error = caught.value
    assert isinstance(error, DocumentError)
    assert (error.source, error.line, error.key, error.exit_code) == ("f.yaml", 2, "b", 1)
    assert error.reason == "expected true or false, got x"


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_key() -> None:
    assert error_of(lambda: read("gpus: 1\ngpu_tpye: H100").mapping(["gpus", "gpu_type"])) == (
        "f.yaml:2: key 'gpu_tpye': unknown key, did you mean 'gpu_type'?"
    )


def test_an_unknown_key_like_no_other_is_told_all_known_ones() -> None:
    assert error_of(lambda: read("zzz: 1").mapping(["gpus", "name"])) == (
        "f.yaml:1: key 'zzz': unknown key, expected one of gpus, name"
    )


def test_a_key_given_twice_is_refused_with_both_lines() -> None:
    assert error_of(lambda: read("a: 1\nb: 2\na: 3")) == "f.yaml:3: the key 'a' is given twice, first on line 1"


def test_a_missing_key_is_named() -> None:
    assert error_of(lambda: read("a: {b: 1}").mapping(["a"])["a"].mapping(["b", "c"]).need("c", Field.text)) == (
        "f.yaml:1: key 'a': the key 'c' is missing"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1, 2", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("a: \t- b\n\t- c", "not valid YAML"),
        ("", "the document is empty"),
        ("# nothing", "the document is empty"),
        ("a: 1\n---\nb: 2", "expected one document, and here begins a second"),
        ("a: !!python/object/apply:os.system [ls]", "is not allowed"),
        ("a: !!int 3", "the tag 'tag:yaml.org,2002:int' is not allowed"),
        ("a: !own 3", "the tag '!own' is not allowed"),
        ("a: &x [*x]", "the alias '*x' stands inside its own anchor"),
        ("a: *x", "the alias '*x' has no anchor before it"),
        ("? [a, b]\n: c", "expected a key that is text, got a list or mapping"),
        ("a: &x 1\n*x : 2", "expected a key that is text, got the alias '*x'"),
        ("&x a: 1", "expected an anchor on a value"),
        ("a: {<<: 3}", "expected a mapping or a list of mappings after '<<'"),
        ("a: \0", "the character U+0000 is not allowed in text"),
        ("a: \x1b[31m", "the character U+001B is not allowed in text"),
        ("a: \ud800", "the character U+D800 is not allowed in text"),
        ("[" * 9 + "]" * 9, "expected at most 8 levels of nesting, got more"),
        ("- " * 5000, "expected at most 8 levels of nesting, got more"),
        ("a: " + "x" * 10_000, "expected at most 10000 characters, got 10003"),
        ("[" + "1, " * 600 + "1]", "expected at most 500 values, aliases included, got more"),
    ],
)
def test_text_that_is_no_document_is_refused(text: str, expected: str) -> None:
    assert expected in error_of(lambda: read(text))


def test_an_error_in_the_middle_of_a_file_has_its_line() -> None:
    assert error_of(lambda: read("a: 1\nb: 2\nc: \x07\n")).startswith("f.yaml:3: ")
    assert error_of(lambda: read("a: 1\nb: 2\nc: d: e\n")).startswith("f.yaml:3: ")


def test_a_small_text_that_expands_to_billions_of_values_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 6)]
    assert "expected at most 500 values, aliases included, got more" in error_of(lambda: read("\n".join(lines)))


def test_a_list_that_is_too_long_is_refused_before_the_rest_is_read() -> None:
    text = "a: 1\nb:\n" + "- x\n" * 6 + "c: d: e\n"
    error = error_of(lambda: read_document(text, "f.yaml", Limits(text=10_000, values=500, items=5)))
    assert error == "f.yaml:2: key 'b': expected at most 5 items in a list, got 6"


def test_aliases_cannot_nest_deeper_than_the_text_could() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 9)]
    assert "levels of nesting" in error_of(lambda: read("\n".join(lines)))


def test_an_alias_stands_for_the_value_of_its_anchor() -> None:
    fields = read("a: &x {n: 1}\nb: *x").mapping(["a", "b"])
    assert fields["b"].mapping(["n"])["n"].integer(0, 9) == 1
    assert fields["b"].line == 2


def test_merged_keys_give_way_to_those_that_are_written() -> None:
    fields = read("a: &x {n: 1, m: 2}\nb: &y {m: 4, k: 5}\nc: {<<: [*x, *y], n: 3}").mapping(["a", "b", "c"])
    assert {key: field.text() for key, field in fields["c"].entries(9)} == {"n": "3", "m": "2", "k": "5"}


def test_json_is_read_with_its_lines() -> None:
    text = json.dumps({"name": "größe 😀", "list": [1, 2.5, True], "path": "a/b\\n"}, indent=2)
    fields = read(text.replace("/", "\\/")).mapping(["name", "list", "path"])
    assert fields["name"].text() == "größe 😀"
    assert fields["path"].text() == "a/b\\n"
    assert [item.text() for item in fields["list"].items(3, 3)] == ["1", "2.5", "true"]
    assert fields["list"].items(3, 3)[1].line == 5


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert read("\ufeffa: 1").mapping(["a"])["a"].integer(0, 1) == 1


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    assert decode("größe".encode(), "f.yaml") == "größe"
    assert error_of(lambda: decode(b"a: 1\nb: \xff", "f.yaml")) == "f.yaml:2: expected UTF-8 text, got the byte 0xff"


@pytest.mark.parametrize("text", ["on", "yes", "1.10", "007", "4820", "true", "2030-01-31", "1:30"])
def test_text_is_taken_as_it_is_written(text: str) -> None:
    assert value(text).text() == text
    assert value(f"'{text}'").text() == text


def test_words_that_other_readers_take_for_truth_can_be_keys() -> None:
    assert read("on: success\nyes: 1").mapping(["on", "yes"])["on"].text() == "success"


@pytest.mark.parametrize("text", ["", "~", "null", "[a]", "{a: b}", r'"a\0b"'])
def test_nothing_and_collections_are_not_text(text: str) -> None:
    assert "expected text" in error_of(value(text).text)


def test_quoted_nothing_is_text() -> None:
    assert value("''").text() == ""
    assert value("'null'").text() == "null"


@pytest.mark.parametrize("text", [r'"a\nb"', "''", "' a'", "a" * 254])
def test_a_title_is_one_line_that_is_not_empty(text: str) -> None:
    assert "expected one line of 1 to 253 printable characters" in error_of(value(text).title)
    assert value("größe 1").title() == "größe 1"


@pytest.mark.parametrize("text", ["a b", "-a", "a/b", "a:b", "_a", "''", "a" * 254])
def test_a_name_is_made_of_letters_digits_and_few_signs(text: str) -> None:
    assert "expected a name of at most 253 letters" in error_of(value(text).name)
    assert value("r1.east-a_2").name() == "r1.east-a_2"


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("+3", 3), ("-3", -3), ("1_000", 1000), ("999", 999)])
def test_whole_numbers_are_read(text: str, number: int) -> None:
    assert value(text).integer(-1000, 1000) == number


@pytest.mark.parametrize(
    "text", ["true", "1.0", "1e3", "010", "0x10", "1_0", "1_", "'5'", "x", "", "[1]", "1001", "9" * 5000, ".nan", "٣"]
)
def test_what_is_not_a_whole_number_in_range_is_refused(text: str) -> None:
    message = error_of(lambda: value(text).integer(-1000, 1000))
    assert "expected a whole number from -1000 to 1000, got " in message
    assert len(message) < 200


@pytest.mark.parametrize(("text", "number"), [("0.1", 0.1), (".5", 0.5), ("2.", 2.0), ("1e3", 1000.0), ("-7", -7.0)])
def test_numbers_are_read(text: str, number: float) -> None:
    assert value(text).number(-1000, 1000) == number


@pytest.mark.parametrize(
    "text", [".nan", ".NaN", "NaN", ".inf", "-.inf", "Infinity", "1e999", "1e9999999999", "true", "'1'", "1.2.3", "-1"]
)
def test_what_is_not_a_finite_number_in_range_is_refused(text: str) -> None:
    assert "expected a number from 0 to 1000, got " in error_of(lambda: value(text).number(0, 1000))


@pytest.mark.parametrize("text", ["yes", "on", "1", "'true'", "", "[]"])
def test_only_true_and_false_are_truth_values(text: str) -> None:
    assert "expected true or false" in error_of(value(text).boolean)
    assert value("true").boolean() is True
    assert value("False").boolean() is False


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("4h", 14_400_000),
        ("90s", 90_000),
        ("2d", 172_800_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("3m5s", 185_000),
        ("90", 90_000),
        ("'90'", 90_000),
        ("0.0001", 1),
        ("0", 0),
        ("00:03:00", 180_000),
        ("72:00:01", 259_201_000),
        ("1-12:00:00", 129_600_000),
    ],
)
def test_durations_are_read(text: str, duration_ms: int) -> None:
    assert value(text).duration_ms() == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        *("4 hours", "-4h", "+4h", "30m1h", "h", "", "[]", ".inf", "1h1h", "4H", "11y", " " * 99),
        *("03:00", "1:60:00", "1:00:60", "1-24:00:00", "1-12", "1-12:00", "-1:00:00", "1:0:0"),
    ],
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    assert "expected a duration such as 90s, 1h30m, 2d" in error_of(value(text).duration_ms)


@pytest.mark.parametrize("text", ["3651d", "1e15", "1e999", "999999999999h"])
def test_a_duration_of_centuries_is_refused(text: str) -> None:
    assert "expected a duration of at most 3650d" in error_of(value(text).duration_ms)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-02T00:00Z", 86_400_000),
        ("1970-01-02T01:00:00+01:00", 86_400_000),
        ("'1970-01-01 00:00:01.5+00:00'", 1500),
        ("86400", 86_400_000),
        ("86400.5", 86_400_500),
        ("+2h", 7_201_000),
        ("+90", 91_000),
    ],
)
def test_moments_are_read(text: str, time_ms: int) -> None:
    assert value(text).time_ms(now_ms=1000) == time_ms


@pytest.mark.parametrize(
    "text",
    ["1970-01-02T00:00", "1970-01-02", "tomorrow", "-5", "1e15", "+x", "", "[]", "0001-01-01T00:00Z", "+999999999999h"],
)
def test_what_is_not_a_moment_is_refused(text: str) -> None:
    assert "expected a time with its zone" in error_of(lambda: value(text).time_ms(now_ms=1000))


@pytest.mark.parametrize(("text", "milli"), [("0.1", 100), ("32", 32_000), ("0.0001", 1), ("0.3", 300), ("1.1", 1100)])
def test_cpus_are_counted_in_thousandths(text: str, milli: int) -> None:
    assert value(text).cpus_milli() == milli


def test_memory_is_counted_in_megabytes() -> None:
    assert value("512").memory_mb() == 524_288
    assert value("0.5").memory_mb() == 512


def test_the_length_of_lists_and_mappings_is_checked() -> None:
    assert "expected a list of 1 to 2 items, got 3" in error_of(lambda: value("[1, 2, 3]").items(1, 2))
    assert "expected at most 1 keys, got 2" in error_of(lambda: value("{a: 1, b: 2}").entries(1))
    assert "expected a list, got 7" in error_of(lambda: value("7").items(1, 2))
    assert "expected a mapping, got a list" in error_of(lambda: value("[]").entries(1))


def test_a_wrong_value_is_shown_short_and_on_one_line() -> None:
    message = error_of(lambda: value('"' + r"a\n" * 500 + '"').choice(["x"]))
    assert message.startswith(r"f.yaml:1: key 'key': expected one of x, got 'a\na\n")
    assert message.endswith("…")
    assert len(message) < 120
