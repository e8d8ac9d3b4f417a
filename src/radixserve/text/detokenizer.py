"""Text from tokens as they arrive.

A character's bytes may be spread over several tokens: they are held back until it is whole. All that was pushed, joined with
`finish()`, is what decoding the output at once gives, in the context of its prompt. A replacement mark (U+FFFD) stands where the
bytes are no UTF-8, as soon as that is certain, and at the very end if the text ends inside a character.
"""

import codecs
from collections.abc import Sequence

import numpy as np

from radixserve.text.token_bytes import TokenBytes

_LONGEST_PART = 3
"""Bytes of an unfinished UTF-8 character, at most."""

_decoder_type = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Decodes one answer. Tokens in `special_ids` have no text."""

    def __init__(self, token_bytes: TokenBytes, special_ids: frozenset[int], prompt_ids: np.ndarray | Sequence[int]) -> None:
        """`prompt_ids`: int [prompt_len]; its end decides how the output begins: inside a character, or without a first space."""
        self._token_bytes = token_bytes
        self._special_ids = special_ids
        self._decoder = _decoder_type("replace")
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = self._bytes(int(token_id)) + tail
            if len(tail) >= _LONGEST_PART:
                break
        self._decoder.decode(tail)
        self._at_start = token_bytes.strips_first_space and not tail

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes the next tokens; returns the text that is now certain."""
        raw = b"".join(map(self._bytes, token_ids))
        if self._at_start and raw:
            raw = raw.removeprefix(b" ")
            self._at_start = False
        return self._decoder.decode(raw)

    def finish(self) -> str:
        """Ends the text: a replacement mark if it ends inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)

    def _bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self._special_ids else self._token_bytes[token_id]
