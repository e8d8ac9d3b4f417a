r"""Look-ahead at the beginning of a pattern, said by further patterns: the grammar library has no look-around, but can hold a text
to several patterns at once.

Zod writes e-mail addresses with `^(?!\.)(?!.*\.\.)`, pydantic decimal numbers with `^(?!^[-+.]*$)`, people passwords with
`^(?=.*[A-Z])(?=.*\d)`. Elsewhere, and where what must not follow is more than that, look-around stays refused.
"""

import re

_CHAR = r"\\[^\w\s] | [^\\\[\](){}.*+?|^$] | \[(?:\\.|[^\\\]])*\]"
"""One character, or brackets, of a pattern."""
_NEGATIVE = re.compile(
    rf"""\(\?!(?:
        \^?(?P<only>\[[^^](?:\\.|[^\\\]])*\])\*\$     # of these alone
        | (?P<first>{_CHAR})                            # begins with it
        | \.\*(?P<twice>{_CHAR})(?P=twice)              # has it twice in a row
    )\)""",
    re.VERBOSE,
)
_POSITIVE = re.compile(r"\(\?=((?:\\.|\[(?:\\.|[^\\\]])*\]|[^\\\[()])*)\)")
"""Without groups inside."""


def without_lookahead(pattern: str) -> list[str]:
    """Patterns that are all matched by nothing but what `pattern` matches. One alone where nothing is to be said otherwise."""
    if not pattern.startswith("^"):
        return [pattern]
    rest, others = pattern[1:], []
    while match := _NEGATIVE.match(rest) or _POSITIVE.match(rest):
        others.append(_said(match))
        rest = rest[match.end() :]
    return ["^" + rest, *others]


def _said(match: re.Match[str]) -> str:
    if match.re is _POSITIVE:
        return f"^(?:{match[1]})"
    if only := match["only"]:
        return f"[^{only[1:]}"
    if first := match["first"]:
        return f"^(?:$|{_complement(first)})"
    char, other = match["twice"], _complement(match["twice"])
    return f"^(?:{char}?{other})*{char}?$"


def _complement(char: str) -> str:
    """Brackets for all other characters."""
    if not char.startswith("["):
        return f"[^{char}]"
    return f"[{char[2:]}" if char.startswith("[^") else f"[^{char[1:]}"
