"""The text of one request's answer as it grows, and whether it has come to its end.

The end is decided here, in the engine, because it decides what is computed and published.
"""

from dataclasses import dataclass

import numpy as np

from radixserve.messages import FinishReason
from radixserve.req import Req
from radixserve.text.detokenizer import Detokenizer
from radixserve.text.stop_strings import StopStrings
from radixserve.text.tokenizer import Tokenizer


@dataclass(slots=True)
class End:
    """Why an answer ended; `stop_reason` is the stop string or the request's own stop token id that did it."""

    reason: FinishReason
    stop_reason: str | int | None = None


class Answer:
    """Turns a request's output tokens into text that may be shown: no half characters, nothing of a stop string.

    Without a tokenizer the text stays empty, and only token ids and lengths end it.
    """

    def __init__(self, req: Req, tokenizer: Tokenizer | None) -> None:
        self._req = req
        self._detokenizer: Detokenizer | None = None
        if tokenizer is not None:
            self._detokenizer = tokenizer.detokenizer(
                np.frombuffer(req.prompt, dtype=np.int32), skip_special_tokens=req.params.skip_special_tokens
            )
        self._stop_strings = StopStrings(req.params.stop)

    def push(self, token_id: int) -> tuple[str, End | None]:
        """Takes the newest token, which is already in `req.output_ids`; returns the text it releases, and the end if it is one."""
        req = self._req
        if token_id in req.stop_ids:
            own = token_id if token_id in req.params.stop_token_ids else None
            text, matched = self._close("")
            return text, End("stop", matched if matched is not None else own)
        shown, matched = "", None
        if self._detokenizer is not None:
            shown, matched = self._check(self._detokenizer.push([token_id]))
        if matched is not None:
            return shown, End("stop", matched)
        if req.matcher is not None and req.matcher.finished:
            text, matched = self._close(shown)
            return text, End("stop", matched)
        if len(req.output_ids) >= req.max_tokens:
            text, matched = self._close(shown)
            return text, End("length") if matched is None else End("stop", matched)
        return shown, None

    def _check(self, text: str) -> tuple[str, str | None]:
        """Text before min_tokens is not searched for stop strings."""
        if len(self._req.output_ids) < self._req.params.min_tokens:
            return text, None
        return self._stop_strings.push(text)

    def _close(self, shown: str) -> tuple[str, str | None]:
        """What was held back: the tail of a character that will not be completed, a beginning of a stop string that was none."""
        if self._detokenizer is None:
            return shown, None
        text, matched = self._check(self._detokenizer.finish())
        if matched is None:
            text += self._stop_strings.finish()
        return shown + text, matched
