"""The bytes each token stands for: the ground of all decoding.

Text is the UTF-8 decoding of the tokens' bytes in a row, so that decoding piece by piece and decoding at once can't differ. Three
kinds of vocabulary are known: byte-level BPE (GPT-2's printable stand-ins for bytes), SentencePiece with byte fallback, and
SentencePiece as a Metaspace decoder.
"""

import json

from tokenizers import Tokenizer as Backend

from radixserve.errors import ModelError


def _byte_level_table() -> dict[str, int]:
    """GPT-2's `bytes_to_unicode`, inverted: printable Latin-1 characters stand for themselves, the rest for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


_BYTE_LEVEL = _byte_level_table()


class TokenBytes(dict[int, bytes]):
    """Maps any id to its bytes, found at first need.

    `strips_first_space`: the space that SentencePiece puts before a text is not a part of it.
    """

    def __init__(self, backend: Backend) -> None:
        """Raises ModelError if the tokenizer's decoder is of none of the known kinds."""
        self._backend = backend
        self._added = {index: token.content for index, token in backend.get_added_tokens_decoder().items()}
        steps = _decoder_steps(backend)
        kinds = [step["type"] for step in steps]
        self._byte_level = kinds == ["ByteLevel"]
        sentencepiece = bool(kinds) and kinds[0] in ("Replace", "Metaspace") and set(kinds[1:]) <= {"ByteFallback", "Fuse", "Strip"}
        if not self._byte_level and not sentencepiece:
            raise ModelError(f"the tokenizer's decoder is {kinds}: supported are ByteLevel, and SentencePiece with byte fallback")
        self.strips_first_space = kinds[-1] == "Strip" or (kinds[0] == "Metaspace" and steps[0]["prepend_scheme"] != "never")

    def __missing__(self, token_id: int) -> bytes:
        """Empty for ids that have no token, such as the padding of a model's vocabulary."""
        found = self[token_id] = self._find(token_id)
        return found

    def _find(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return b""
        if self._byte_level:
            known = all(char in _BYTE_LEVEL for char in token)
            return bytes(_BYTE_LEVEL[char] for char in token) if known else token.encode()
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace("▁", " ").encode()


def _decoder_steps(backend: Backend) -> list[dict[str, str]]:
    if backend.decoder is None:
        return []
    state = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, str]] = state["decoders"] if state["type"] == "Sequence" else [state]
    return steps
