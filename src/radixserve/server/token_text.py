"""Tokens as text, for logprobs. A token may be a part of a character: then its bytes are what identifies it."""

from radixserve.messages import TokenLogprob
from radixserve.server.replies import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob
from radixserve.text.tokenizer import Tokenizer


def completion_logprobs(tokenizer: Tokenizer, logprobs: list[TokenLogprob], offset: int) -> tuple[CompletionLogprobs, int]:
    """The lists of /v1/completions, and the next offset. `offset`: characters of the answer before the first of these tokens.

    The alternatives include the sampled token, as OpenAI's do. Tokens that are no whole characters are written as OpenAI writes
    them, `bytes:\\xe2\\x82`, so that two of them never share a key.
    """
    shown = CompletionLogprobs([], [], [], [])
    for item in logprobs:
        name = _name(tokenizer, item.token_id)
        shown.tokens.append(name)
        shown.token_logprobs.append(item.logprob)
        shown.top_logprobs.append({name: item.logprob} | {_name(tokenizer, other): value for other, value in item.top})
        shown.text_offset.append(offset)
        offset += len(tokenizer.token_bytes[item.token_id].decode(errors="ignore"))
    return shown, offset


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
