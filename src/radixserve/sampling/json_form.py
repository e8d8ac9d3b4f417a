"""How JSON is written in answers, in llguidance's terms."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

JSON_FORM: "JsonCompileOptions" = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
    "json_allowed_escapes": 'nrbtf\\"',
}
"""Of all JSON. The spaces that models write by themselves and no others: a model can't go on writing white space, and most of it is
forced. No \\u escapes, by which a key could be spelled twice."""
