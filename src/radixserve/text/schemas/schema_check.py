"""Finished texts are checked against their schema: the last line, behind the grammar, before a client takes one for right."""

from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError

from radixserve.errors import AnswerError, InvalidRequestError
from radixserve.json_text import read_json
from radixserve.text.schemas.modern import modern
from radixserve.text.schemas.walk import shown
from radixserve.text.surrogates import join_all_surrogates


class SchemaCheck:
    """One schema. `subject`: what errors call it."""

    def __init__(self, schema: dict[str, Any], subject: str = "the json_schema") -> None:
        """Raises InvalidRequestError (param "grammar") for what is no schema, with keyword and place."""
        self._subject = subject
        try:
            self._validator = Draft202012Validator(modern(schema, subject), validate_formats=True, offline=True)
        except ValidationError as error:
            *place, keyword = error.instance_path or ["$ref"]
            message = f'"{keyword}" at {_pointer(place)} of {subject} is wrong: {error.message:.200}'
            raise InvalidRequestError(message, param="grammar") from None
        except ValueError as error:  # what jsonschema_rs says beyond its own depth, which is less than json's
            raise InvalidRequestError(f"{subject} can't be read: {error}; flatten it", param="grammar") from None

    def check(self, text: str) -> None:
        """Raises AnswerError for a text that is not JSON or breaks the schema. Nothing of the text is in it.

        Of a key that comes twice the last value counts, as most readers have it.
        """
        try:
            value = join_all_surrogates(read_json(text, surrogates=True))
        except ValueError:
            raise AnswerError(f"the answer is not JSON, or holds a number beyond a double, under {self._subject}") from None
        error = next(self._validator.iter_errors(value), None)
        if error is not None:
            *place, keyword = error.schema_path or ["false"]
            raise AnswerError(f'the answer breaks "{keyword}" at {_pointer(place)} of {self._subject}')


def _pointer(path: list[str | int]) -> str:
    return shown("/".join(["#", *(str(step).replace("~", "~0").replace("/", "~1") for step in path)]))
