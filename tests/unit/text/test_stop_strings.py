"""Stop strings in a stream."""

import pytest

from radixserve.text.stop_strings import StopStrings


def run(stop: tuple[str, ...], pieces: list[str]) -> tuple[list[str], str | None]:
    """What each push showed, up to a match; without one also what `finish` gave."""
    watch = StopStrings(stop)
    shown = []
    for piece in pieces:
        text, matched = watch.push(piece)
        shown.append(text)
        if matched is not None:
            assert watch.finish() == ""
            return shown, matched
    return [*shown, watch.finish()], None


@pytest.mark.parametrize(
    ("stop", "pieces", "expected"),
    [
        ((), ["a", "b"], (["a", "b", ""], None)),
        (("DEFGHIJ",), ["ABCD", "EF", "GHIJ", "K"], (["ABC", "", ""], "DEFGHIJ")),
        (("DEFGHIJ",), ["ABCD", "EFX", "Y"], (["ABC", "DEFX", "Y", ""], None)),
        (("DEFGHIJ",), ["ABCDEF"], (["ABC", "DEF"], None)),
        (("b",), ["abc"], (["a"], "b")),
        (("bcd", "abcde"), ["x", "abcde"], (["x", "a"], "bcd")),
        (("cd", "bcd"), ["abcd"], (["a"], "bcd")),
        (("aab",), ["aa", "a", "b"], (["", "a", ""], "aab")),
        (("🐱🐶",), ["x🐱", "🐱", "🐶"], (["x", "🐱", ""], "🐱🐶")),
        (("\n\n",), ["a\n", "b\n", "\nc"], (["a", "\nb", ""], "\n\n")),
    ],
)
def test_nothing_of_a_stop_string_leaks(stop: tuple[str, ...], pieces: list[str], expected: tuple[list[str], str | None]) -> None:
    assert run(stop, pieces) == expected
