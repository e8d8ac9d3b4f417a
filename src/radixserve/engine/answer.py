"""One request's answer as it grows: its tokens, its text, and whether it has come to its end; and the messages that tell of it.

The end is decided here, in the engine, because it decides what is computed and published.
"""

from dataclasses import dataclass

from radixserve.errors import ParamError
from radixserve.ipc import FinishReason, Output, RequestFailed, TokenLogprob
from radixserve.req import Req
from radixserve.text.detokenizer import Detokenizer
from radixserve.text.stop_strings import StopStrings
from radixserve.text.tokenizer import Tokenizer
from radixserve.tokens import as_ids


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
        self.req = req
        self._detokenizer: Detokenizer | None = None
        if tokenizer is not None:
            self._detokenizer = tokenizer.detokenizer(as_ids(req.prompt), skip_special_tokens=req.params.skip_special_tokens)
        self._stop_strings = StopStrings(req.params.stop)

    def push(self, token_id: int) -> tuple[str, End | None]:
        """Adds a token to the request's output; returns the text it releases, and the end if it is one."""
        req = self.req
        req.output_ids.append(token_id)
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

    def output(self, text: str, token_ids: tuple[int, ...], end: End | None, logprob: TokenLogprob | None = None) -> Output:
        """The news that these tokens, the last of the request's output, and this text came."""
        req = self.req
        return Output(
            rid=req.rid,
            text=text,
            token_ids=token_ids,
            prompt_tokens=req.prompt_len,
            cached_tokens=req.cached_len or 0,
            completion_tokens=len(req.output_ids),
            finish_reason=end.reason if end is not None else None,
            stop_reason=end.stop_reason if end is not None else None,
            logprobs=(logprob,) if logprob is not None else (),
            prompt_logprobs=tuple(req.prompt_logprobs) if len(req.output_ids) == len(token_ids) else (),
            explanation=req.explanation if end is not None and req.explain_cache else None,
            admitted_s=req.admitted_s if end is not None else None,
        )

    def failure(self) -> RequestFailed:
        """Why the request was not given a token."""
        req = self.req
        position = req.seq_len
        if req.matcher is None:
            message = f"the model's logits at position {position} are not numbers: nothing can be sampled from them"
            return RequestFailed(req.rid, "internal", message)
        if fault := req.matcher.fault:
            message = f"the grammar became too costly at position {position}: {fault}"
            return RequestFailed(req.rid, "invalid_request", message, "grammar")
        if len(req.output_ids) < req.params.min_tokens:
            problem = f"is {req.params.min_tokens}: the grammar allows only what would end the answer before; lower it"
            return RequestFailed.of(req.rid, ParamError("min_tokens", problem))
        message = f"the grammar allows no token that the model could give at position {position}"
        return RequestFailed(req.rid, "internal", message)

    def _check(self, text: str) -> tuple[str, str | None]:
        """Text before min_tokens is not searched for stop strings."""
        if len(self.req.output_ids) < self.req.params.min_tokens:
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
