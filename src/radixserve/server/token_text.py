"""Tokens as text, for logprobs."""

from radixserve.messages import TokenLogprob
from radixserve.server.replies import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob
from radixserve.text.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def completion_logprobs(tokenizer: Tokenizer, logprobs: list[TokenLogprob], offset: int) -> CompletionLogprobs:
    """The lists of /v1/completions. `offset`: characters of the answer before the first of these tokens.

    The alternatives include the sampled token, as OpenAI's do.
    """
    shown = CompletionLogprobs([], [], [], [])
    for item in logprobs:
        text = _text(tokenizer, item.token_id)
        shown.tokens.append(text)
        shown.token_logprobs.append(item.logprob)
        shown.top_logprobs.append({text: item.logprob} | {_text(tokenizer, other): value for other, value in item.top})
        shown.text_offset.append(offset)
        offset += len(text)
    return shown


def chat_logprobs(tokenizer: Tokenizer, logprobs: list[TokenLogprob]) -> ChatLogprobs:
    """The list of /v1/chat/completions."""

    def top(token_id: int, value: float) -> TopLogprob:
        text = _text(tokenizer, token_id)
        return TopLogprob(text, value, _bytes(text))

    content = []
    for item in logprobs:
        this = top(item.token_id, item.logprob)
        others = [top(token_id, value) for token_id, value in item.top]
        content.append(ChatTokenLogprob(this.token, this.logprob, this.bytes, others))
    return ChatLogprobs(content)


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode([token_id], skip_special_tokens=False)


def _bytes(text: str) -> list[int] | None:
    return None if REPLACEMENT in text else list(text.encode())
