"""A tokenizer from a Hugging Face directory: tokenizer.json, with what stands around it in the other JSON files."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from radixserve.errors import ModelError
from radixserve.model_files import is_regular, read_json, reading, shown
from radixserve.text.spec import TokenizerSpec

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def load_directory(path: Path) -> TokenizerSpec:
    """Loads the tokenizer of the model directory `path`; raises ModelError if tokenizer.json is missing or a file is broken."""
    file = path / "tokenizer.json"
    if not is_regular(file):
        raise ModelError(
            f"{shown(path)} has no tokenizer.json: it is needed (other formats, such as tokenizer.model, are not read)"
        )
    with reading(file):
        backend = Backend.from_file(str(file))
    with reading(path):
        return _spec(path, backend)


def _spec(path: Path, backend: Backend) -> TokenizerSpec:
    config = _read_config(path)
    _add_tokens(backend, path, config)
    special_tokens = {role: text for role in _ROLES if (text := _token_text(config.get(role))) is not None}
    bos, eos = special_tokens.get("bos_token"), special_tokens.get("eos_token")
    bos_id = backend.token_to_id(bos) if bos is not None else None
    eos_id = backend.token_to_id(eos) if eos is not None else None
    _ensure_bos(backend, bos, bos_id, config)
    return TokenizerSpec(
        backend=backend,
        bos_id=bos_id,
        eos_ids=_model_eos_ids(path) | (frozenset() if eos_id is None else frozenset({eos_id})),
        special_tokens=special_tokens,
        templates=_templates(path, config),
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is no such file."""
    return read_json(path, missing_ok=True)


def _read_config(path: Path) -> dict[str, Any]:
    """tokenizer_config.json. What the older special_tokens_map.json says comes before it, as in transformers, which reads that
    file where the config lists no `added_tokens_decoder`."""
    config = _read_json(path / "tokenizer_config.json")
    if config.get("added_tokens_decoder") is None:
        config |= {key: value for key, value in _read_json(path / "special_tokens_map.json").items() if value is not None}
    if config.get("split_special_tokens"):
        raise ModelError(
            f"{shown(path)} has split_special_tokens in its tokenizer_config.json: it is not supported; set it to false"
        )
    return config


def _add_tokens(backend: Backend, path: Path, config: dict[str, Any]) -> None:
    """Adds the tokens that only the files around tokenizer.json name, in the order and with the flags of transformers: those that
    have a number by it, then roles, other names that end in `_token`, and the rest as they are listed."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = [config.get(role) for role in _ROLES]
    named += [value for key, value in config.items() if key.endswith("_token") and key not in _ROLES and isinstance(value, str)]
    special = [_added_token(token) for token in [*named, *(extra.values() if isinstance(extra, dict) else extra)] if token]
    numbered = _numbered_tokens(backend, path, config, {token.content for token in special})
    backend.add_tokens([token for _, token in sorted(numbered.items(), key=lambda item: item[0])])
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in special if token.content not in added])
    for token_id, token in numbered.items():
        if (known := backend.token_to_id(token.content)) != token_id:
            raise ModelError(
                f"{shown(path)} gives the token {shown(repr(token.content))} the id {token_id}, and tokenizer.json leaves it "
                f"{known}: the files don't belong together; download the model again"
            )


def _numbered_tokens(backend: Backend, path: Path, config: dict[str, Any], special: set[str]) -> dict[int, AddedToken]:
    """Of `added_tokens_decoder`, whose flags count more than those of tokenizer.json; without it of added_tokens.json, which has
    none. `special`: texts that are special tokens elsewhere."""
    if (listed := config.get("added_tokens_decoder")) is not None:
        return {int(token_id): _added_token(token, special=False) for token_id, token in listed.items()}
    stated = _read_json(path / "added_tokens.json")
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    return {token_id: known.get(text) or _added_token(text, special=text in special) for text, token_id in stated.items()}


def _added_token(value: Any, *, special: bool = True) -> AddedToken:
    """A token that is written as its text, or as an object with its text and flags. `special` where they don't say it."""
    if isinstance(value, str):
        value = {"content": value}
    return AddedToken(value["content"], **{"special": special} | {flag: value[flag] for flag in _FLAGS if flag in value})


def _token_text(value: Any) -> str | None:
    """A special token is written as its text or as an object with its text in `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _ensure_bos(backend: Backend, bos: str | None, bos_id: int | None, config: dict[str, Any]) -> None:
    """Honours add_bos_token where the tokenizer itself has no post-processor that would add one."""
    if config.get("add_bos_token") and bos_id is not None and backend.post_processor is None:
        backend.post_processor = processors.TemplateProcessing(single=f"{bos}:0 $A:0", special_tokens=[(bos, bos_id)])


def _model_eos_ids(path: Path) -> frozenset[int]:
    """End tokens of generation_config.json, or of config.json where that one names none."""
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(path / name).get("eos_token_id")
        if ids is not None:
            return frozenset(token_id for token_id in (ids if isinstance(ids, list) else [ids]) if isinstance(token_id, int))
    return frozenset()


def _templates(path: Path, config: dict[str, Any]) -> dict[str, str]:
    """Chat templates by name. Files of their own come before what tokenizer_config.json holds."""
    value = config.get("chat_template") or _read_json(path / "chat_template.json").get("chat_template")
    if isinstance(value, list):
        templates = {entry["name"]: entry["template"] for entry in value}
    else:
        templates = {"default": value} if isinstance(value, str) else {}
    default = path / "chat_template.jinja"
    if is_regular(default):
        templates["default"] = default.read_text(encoding="utf-8")
    for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = file.read_text(encoding="utf-8")
    return templates
