"""A model's tokenizer: text to token ids and back, chats included.

Special tokens written in plain text given to `encode` act as special tokens: whoever sends a raw prompt writes it whole. In the
messages of a chat they are only characters (see `control_markers`); a chat without them is tokenized as transformers does it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend

from radixserve.errors import InvalidRequestError, ModelError
from radixserve.text.chat_messages import normalize_messages
from radixserve.text.chat_template import ChatTemplate
from radixserve.text.control_markers import ControlMarkers
from radixserve.text.detokenizer import Detokenizer
from radixserve.text.gguf_tokenizer import load_gguf
from radixserve.text.hf_tokenizer import load_directory
from radixserve.text.spec import TokenizerSpec
from radixserve.text.token_bytes import TokenBytes
from radixserve.text.tools.teaching import spell_out_calls, teach_tools

_NEVER_MERGED = "\x02"
"""A character that no vocabulary joins with others: what is tokenized behind it is not at the beginning of its text."""


class Tokenizer:
    """Immutable after loading; safe to use from several threads."""

    def __init__(self, spec: TokenizerSpec) -> None:
        """Raises ModelError if the vocabulary's decoder or a chat template is not supported."""
        self._backend = spec.backend
        self._backend.no_truncation()
        self._backend.no_padding()
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._markers = ControlMarkers(added[index].content for index in self.special_ids)
        self._templates = {name: ChatTemplate(source, spec.special_tokens) for name, source in spec.templates.items()}
        self.token_bytes = TokenBytes(self._backend)
        self.vocab_size: int = self._backend.get_vocab_size(with_added_tokens=True)
        self.bos_id = spec.bos_id
        self.eos_ids = spec.eos_ids

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Loads from a GGUF file or a Hugging Face directory; raises ModelError if it is missing, broken or not supported."""
        if not path.exists():
            raise ModelError(f"{path} does not exist: name a GGUF file or a Hugging Face directory")
        return cls(load_directory(path) if path.is_dir() else load_gguf(path))

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's default template."""
        return self._templates.get("default")

    @property
    def template_for_tools(self) -> ChatTemplate | None:
        """The template of chats with tools: some models have one of its own for them."""
        return self._templates.get("tool_use") or self.chat_template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> np.ndarray:
        """Token ids of a text, int32 [n]. Where the model wants a first BOS there is one, even if the text brings its own."""
        ids = _encode(self._backend, text, add_special_tokens=add_special_tokens)
        if len(ids) > 1 and add_special_tokens and ids[0] == ids[1] == self.bos_id:
            ids = ids[1:]
        return np.array(ids, dtype=np.int32)

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of a text in which special tokens are only characters."""
        return _encode(self._plain_backend, text, add_special_tokens=False)

    def encode_inner(self, text: str) -> list[int]:
        """Token ids of a text that stands inside of another: no space is put before it, special tokens are only characters."""
        if not self.token_bytes.strips_first_space:
            return self.encode_plain(text)
        ids = self.encode_plain(_NEVER_MERGED + text)
        return ids[self._num_never_merged :]

    def decode(self, ids: np.ndarray | Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of whole sequences; bytes that are no UTF-8 become replacement marks (U+FFFD)."""
        detokenizer = Detokenizer(self.token_bytes, self.special_ids if skip_special_tokens else frozenset(), ())
        return detokenizer.push([int(token_id) for token_id in ids]) + detokenizer.finish()

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: dict[str, Any] | None = None,
        check: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Token ids of a chat, int32 [n]. The template writes the BOS, if there is to be one.

        A message of a developer is one of the system where the template knows no developer.
        `tools` are in OpenAI's form. A template that knows none gets them as text (see `tools.teaching`).
        `check` is called with the number of characters of the rendered chat before it is tokenized, and may raise.

        Raises InvalidRequestError if the model has no template, or for messages that can't be rendered with it.
        """
        template = self.template_for_tools if tools else self.chat_template
        if template is None:
            raise InvalidRequestError("the model has no chat template: send a whole prompt to /v1/completions instead")
        shown, tools = self._shield(normalize_messages(messages), "messages"), self._shield(tools, "tools") or None
        if not template.knows_developer:
            shown = [message | {"role": "system"} if message["role"] == "developer" else message for message in shown]
        if not template.knows_calls:
            shown = spell_out_calls(shown)
        if not template.knows_tools:
            shown, tools = teach_tools(shown, tools or []), None
        rendered = template.render(
            shown,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=self._shield(template_kwargs, "chat_template_kwargs"),
        )
        if check is not None:
            check(len(rendered))
        return np.array(self._encode_rendered(rendered), dtype=np.int32)

    def detokenizer(self, prompt_ids: np.ndarray | Sequence[int], *, skip_special_tokens: bool = True) -> Detokenizer:
        """Decodes one answer to the prompt as it comes."""
        return Detokenizer(self.token_bytes, self.special_ids if skip_special_tokens else frozenset(), prompt_ids)

    def vocabulary_texts(self, ids: np.ndarray | Sequence[int]) -> list[str]:
        """Tokens as the vocabulary writes them (`Ġblue`, `▁blue`), not as they are read; "" for an id that it hasn't."""
        return [self._backend.id_to_token(int(token_id)) or "" for token_id in ids]

    def special_id(self, text: str) -> int | None:
        """The id of the special token with this text; None where there is none."""
        token_id = self._backend.token_to_id(text)
        return token_id if token_id in self.special_ids else None

    def _shield(self, value: Any, param: str) -> Any:
        try:
            return self._markers.shield(value)
        except RecursionError as error:
            raise InvalidRequestError(f"{param} is nested too deeply: flatten it", param=param) from error

    def _encode_rendered(self, rendered: str) -> list[int]:
        ids: list[int] = []
        for text, plain in self._markers.segments(rendered):
            ids += _encode(self._plain_backend if plain else self._backend, text, add_special_tokens=False)
        return ids

    @cached_property
    def _num_never_merged(self) -> int:
        return len(self.encode_plain(_NEVER_MERGED))

    @cached_property
    def _plain_backend(self) -> Backend:
        """The same vocabulary, blind to special tokens. A copy, since the switch belongs to the object; made at first need."""
        backend: Backend = Backend.from_str(self._backend.to_str())
        backend.encode_special_tokens = True
        return backend


def _encode(backend: Backend, text: str, *, add_special_tokens: bool) -> list[int]:
    try:  # a batch of one: `encode` holds the interpreter's lock for as long as it takes, and is slower
        ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    except TypeError as error:  # what tokenizers says to a string that has no UTF-8
        raise InvalidRequestError(
            "the text holds a lone surrogate (U+D800 to U+DFFF): send whole characters", param="prompt"
        ) from error
    return ids
