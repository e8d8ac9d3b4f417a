"""Formats as regular expressions that match nothing which their standards forbid. The grammar library's own let more through."""

_DAY_28 = "(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    f"(?:(?:0[1-9]|1[0-2])-{_DAY_28}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    f"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
"""No leap seconds: whether one was is no matter of form."""
_CLOCK = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,19}"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,5}}"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,15}"

_H = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [f"(?:{_H}:){{7}}{_H}", f"(?:{_H}:){{1,7}}:", f":(?::{_H}){{1,7}}", "::"]
    + [f"(?:{_H}:){{1,{7 - n}}}(?::{_H}){{1,{n}}}" for n in range(1, 7)]
)
_URI_CHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})"
_AUTHORITY = r"//[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,4})?"
_SEGMENT = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})"
_H4, _H8 = "[0-9a-fA-F]{4}", "[0-9a-fA-F]{8}"

PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": (f"^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:{_CLOCK})?|{_CLOCK})$"),
    "hostname": f"^{_HOST}$",
    "email": rf"^{_ATOM}(?:\.{_ATOM}){{0,3}}@{_HOST}$",
    "ipv4": r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$",
    "uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv6": f"^(?:{_IPV6})$",
    "uri": rf"^[A-Za-z][A-Za-z0-9+.-]*:(?:{_AUTHORITY})?(?:/{_SEGMENT}*)*(?:\?{_URI_CHAR}*)?(?:#{_URI_CHAR}*)?$",
    **{f"uuid{n}": f"^{_H8}-{_H4}-{n}[0-9a-fA-F]{{3}}-[89abAB][0-9a-fA-F]{{3}}-{_H8}{_H4}$" for n in (1, 3, 4, 5, 6, 7, 8)},
}
"""Those that JSON Schema defines, and pydantic's names for versions of UUIDs."""

NOT_HELD = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "uri-reference",
        "uri-template",
        "iri",
        "iri-reference",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    }
)
"""The others that JSON Schema defines. Any other name (`path`, `password`, `binary`, `int32`) is an annotation, by the standard."""
