r"""Regular expressions of JSON Schema (ECMA-262) in the dialect of the grammar library (Rust's), never matching more.

The two differ in what `.` and `\s` match, in operators inside of brackets, and in escapes that only one of them has. A class is
read as the smaller of the two sets, and a negated one as the complement of the larger.
"""

import re

_LINE_ENDS = r"\n\r\u{2028}\u{2029}"
_SPACE = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}"
"""What every dialect calls white space."""
_WIDE_SPACE = _SPACE + r"\x1C-\x1F\u{85}\u{FEFF}"
"""What any of them does."""
_NARROW = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}
_WIDE = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{N}\p{Pc}\u{200C}\u{200D}", "s": _WIDE_SPACE}

_TOKEN = re.compile(
    r"""\\(?:
        x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | u\{[0-9a-fA-F]+\} | [pP](?:\{[\w=]+\}|[A-Z])
        | [dDwWsS] | [tnrfv0] | [^\w\s] | [bB]
    ) | \(\?: | \(\?<[A-Za-z_]\w*> | \(\? | [\[\]] | \\ | .""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {r"\v": r"\x0B", r"\0": r"\x00", r"\/": "/"}


def portable(pattern: str) -> str:
    """`pattern` in Rust's dialect. Raises ValueError for what the dialects read differently, or only one of them reads."""
    return "".join(_tokens(pattern))


def _tokens(pattern: str) -> list[str]:
    out: list[str] = []
    inside, negated, begun = False, False, 0
    tokens = _TOKEN.findall(pattern)
    for token, before, after in zip(tokens, ["", *tokens], [*tokens[1:], ""], strict=False):
        if token == "\\":
            raise ValueError(f"the escape \\{after} is unknown, or means something else elsewhere")
        if inside:
            inside = token != "]"
            if token + after == "--":
                raise ValueError("-- in brackets means something else elsewhere")
            if not inside and len(out) == begun + negated:
                raise ValueError("empty brackets can't be enforced")
            out.append(_inside(token, negated) if token != "^" or before != "[" else token)
        elif token == "(?":
            raise ValueError("look-around and flags can't be enforced")
        elif token == ".":
            out.append(f"[^{_LINE_ENDS}]")
        else:
            inside, negated = token == "[", after == "^"
            out.append(_escape(token))
            begun = len(out)
    return out


def _inside(token: str, negated: bool) -> str:
    """A token in brackets, where Rust has operators and nested brackets."""
    if token.startswith("\\"):
        return _escape(token, inside=True, negated=negated)
    return "".join(f"\\{char}" if char in "[&~" else char for char in token)


def _escape(token: str, *, inside: bool = False, negated: bool = False) -> str:
    r"""A class by the letter of its escape: what `\S` surely matches is what no dialect calls white space, and so on."""
    if len(token) != 2 or token[0] != "\\" or token[1] not in "dDwWsS":
        return _ESCAPES.get(token, token)
    complement = token[1].isupper()
    members = (_WIDE if complement != negated else _NARROW)[token[1].lower()]
    if complement:
        return f"[^{members}]"
    return members if inside else f"[{members}]"
