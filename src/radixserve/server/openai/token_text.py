"""Tokens as text, for logprobs. A token may be a part of a character: then its bytes are what identifies it."""

from collections.abc import Sequence

import msgspec

from radixserve.ipc import TokenLogprob
from radixserve.server.openai.replies import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from radixserve.text.detokenizer import Detokenizer
from radixserve.text.tokenizer import Tokenizer


class TextOffsets:
    """Where each token of a text begins, in characters: a token inside of a character where that character does."""

    def __init__(self, detokenizer: Detokenizer, start: int) -> None:
        """`start`: characters before the first token."""
        self._detokenizer = detokenizer
        self.end = start
        """Whole characters so far."""

    def take(self, token_id: int) -> int:
        """The offset of the next token."""
        offset = self.end
        self.end += len(self._detokenizer.push([token_id]))
        return offset


def completion_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprob], offsets: TextOffsets) -> CompletionLogprobs:
    """The lists of /v1/completions. `offsets`: of the text that these tokens go on with.

    The alternatives include the sampled token, as OpenAI's do. Tokens that are no whole characters are written as OpenAI writes
    them, `bytes:\\xe2\\x82`, so that two of them never share a key.
    """
    shown = CompletionLogprobs([], [], [], [])
    for item in logprobs:
        name = _name(tokenizer, item.token_id)
        shown.tokens.append(name)
        shown.token_logprobs.append(item.logprob)
        shown.top_logprobs.append({name: item.logprob} | {_name(tokenizer, other): value for other, value in item.top})
        shown.text_offset.append(offsets.take(item.token_id))
    return shown


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    """The lists of two stretches of text, one after the other."""
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )


def echo_logprobs(
    tokenizer: Tokenizer, first_id: int, logprobs: Sequence[TokenLogprob], count: int, prompt: str
) -> CompletionLogprobs:
    """The lists of /v1/completions for a prompt that the answer repeats. `count`: alternatives shown; `first_id` has none."""
    scores = [msgspec.structs.replace(item, top=item.top[:count]) for item in logprobs]
    offsets = TextOffsets(tokenizer.detokenizer((), skip_special_tokens=False), 0)
    first = offsets.take(first_id)
    rest = completion_logprobs(tokenizer, scores, offsets)
    added = max(offsets.end - len(prompt), 0)  # characters of tokens that the text doesn't hold, such as a BOS
    return CompletionLogprobs(
        [_name(tokenizer, first_id), *rest.tokens],
        [None, *rest.token_logprobs],
        [None, *rest.top_logprobs],
        [max(offset - added, 0) for offset in (first, *rest.text_offset)],
    )


def prompt_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprob], count: int) -> PromptLogprobs:
    """A scored prompt as vLLM shows it, with `count` alternatives."""

    def entry(token_id: int, logprob: float, rank: int) -> PromptLogprob:
        return PromptLogprob(logprob, rank, tokenizer.token_bytes[token_id].decode(errors="replace"))

    shown: PromptLogprobs = [None]
    for item in logprobs:
        own = {item.token_id: entry(item.token_id, item.logprob, item.rank)}
        likeliest = {token_id: entry(token_id, value, rank) for rank, (token_id, value) in enumerate(item.top[:count], 1)}
        shown.append(likeliest | own)
    return shown


def chat_logprobs(tokenizer: Tokenizer, logprobs: list[TokenLogprob]) -> ChatLogprobs:
    """The list of /v1/chat/completions."""

    def top(token_id: int, value: float) -> TopLogprob:
        raw = tokenizer.token_bytes[token_id]
        return TopLogprob(raw.decode(errors="replace"), value, list(raw))

    content = []
    for item in logprobs:
        this = top(item.token_id, item.logprob)
        others = [top(token_id, value) for token_id, value in item.top]
        content.append(ChatTokenLogprob(this.token, this.logprob, this.bytes, others))
    return ChatLogprobs(content)


def _name(tokenizer: Tokenizer, token_id: int) -> str:
    raw = tokenizer.token_bytes[token_id]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
