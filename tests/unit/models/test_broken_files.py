"""Broken folders, files and names: each is a ModelError of one line, whatever is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import AdapterCheckpoint
from radixserve.models.registry import resolve
from radixserve.models.source import load_config, open_checkpoint
from radixserve.text.tokenizer import Tokenizer
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_gguf import make_tiny_gguf
from tests.tiny_models import make_tiny_model

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["yarn", "llama3", "linear", "sliding_attention", 10**9, -1, 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["factor", "rope_type", "content", "a"]), inner),
    max_leaves=5,
)


def one_line(read: Callable[[], Any]) -> None:
    """Reads, or raises a ModelError of one line that is not too long for a log."""
    try:
        read()
    except ModelError as error:
        message = str(error)
    else:
        return
    assert "\n" not in message
    assert len(message) < 2000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), rope_scaling={"rope_type": "linear", "factor": 2.0})


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", model)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return make_tiny_adapter(tmp_path_factory.mktemp("adapter"), model)


def check_json(folder: Path, name: str, data: st.DataObject, read: Callable[[], Any]) -> None:
    """Reads with a few values of a JSON file replaced, and puts the file back."""
    path = folder / name
    whole = path.read_text()
    values = json.loads(whole)
    keys = data.draw(st.lists(st.sampled_from([*values, "rope_scaling", "layer_types", "added_tokens_decoder"]), max_size=3))
    for key in keys:
        values[key] = data.draw(JSON)
    try:
        path.write_text(json.dumps(values))
        one_line(read)
    finally:
        path.write_text(whole)


FAST = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
LONG = settings(max_examples=3000, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fuzz_json(model: Path, adapter: Path, data: st.DataObject) -> None:
    match data.draw(st.sampled_from(["config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json"])):
        case "adapter_config.json" as name:
            check_json(adapter, name, data, lambda: AdapterCheckpoint(adapter, load_config(model)))
        case "tokenizer_config.json" as name:
            check_json(model, name, data, lambda: Tokenizer.load(model))
        case name:
            check_json(model, name, data, lambda: open_checkpoint(model))


def fuzz_bytes(folder: Path, name: str, data: st.DataObject, read: Callable[[Path], Any]) -> None:
    """Reads a copy of a file of which a part is cut off or some bytes are others: mostly of its header."""
    whole = (folder / name).read_bytes()
    broken = bytearray(whole[: data.draw(st.sampled_from([len(whole), 0, 3, 8, 40, len(whole) // 2]))])
    for _ in range(data.draw(st.integers(0, 4))):
        if broken:
            at = data.draw(st.integers(0, min(len(broken), 2000) - 1))
            broken[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    (folder / "broken").mkdir(exist_ok=True)
    path = folder / "broken" / name
    path.write_bytes(broken)
    one_line(lambda: read(path))


def read_gguf(path: Path) -> None:
    Tokenizer.load(path)
    _, checkpoint = open_checkpoint(path)
    for name in checkpoint.shapes:
        checkpoint.read(name)


@FAST
@given(data=st.data())
def test_json_of_any_form(model: Path, adapter: Path, data: st.DataObject) -> None:
    fuzz_json(model, adapter, data)


@FAST
@given(data=st.data())
def test_gguf_files_of_any_bytes(gguf: Path, data: st.DataObject) -> None:
    fuzz_bytes(gguf.parent, gguf.name, data, read_gguf)


@pytest.mark.slow
@LONG
@given(data=st.data())
def test_json_of_any_form_at_length(model: Path, adapter: Path, data: st.DataObject) -> None:
    fuzz_json(model, adapter, data)


@pytest.mark.slow
@LONG
@given(data=st.data())
def test_gguf_files_of_any_bytes_at_length(gguf: Path, data: st.DataObject) -> None:
    fuzz_bytes(gguf.parent, gguf.name, data, read_gguf)


@FAST
@given(data=st.data())
def test_safetensors_of_any_bytes(model: Path, adapter: Path, data: st.DataObject) -> None:
    def read_model(path: Path) -> None:
        for name in ("config.json", "generation_config.json"):
            (path.parent / name).write_text((model / name).read_text())
        open_checkpoint(path.parent)

    def read_adapter(path: Path) -> None:
        (path.parent / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
        AdapterCheckpoint(path.parent, load_config(model))

    if data.draw(st.booleans()):
        fuzz_bytes(model, "model.safetensors", data, read_model)
    else:
        fuzz_bytes(adapter, "adapter_model.safetensors", data, read_adapter)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "\x00\xff", '{"hidden_size": NaN}', "[" * 100_000, '{"a":' * 50_000, "9" * 10_000],
    ids=["empty", "cut off", "a list", "null", "binary", "NaN", "deep lists", "deep objects", "a huge number"],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_texts_that_are_no_object(tmp_path: Path, name: str, text: str) -> None:
    make_tiny_model(tmp_path)
    (tmp_path / name).write_text(text)

    def load() -> None:
        open_checkpoint(tmp_path)
        Tokenizer.load(tmp_path)

    with pytest.raises(ModelError) as error:
        load()
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["a" * 300, "a" * 5000, "x\x00y", "~nobody-has-this-name/x", "/dev/zero", "/dev", "", "\ud800", "a/b/c", "."]
)
def test_names_that_are_no_model(name: str) -> None:
    with pytest.raises(ModelError) as error:
        resolve(name)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "generation_config.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    make_tiny_model(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    one_line(lambda: (open_checkpoint(tmp_path), Tokenizer.load(tmp_path)))


def test_a_huge_number_of_layers_takes_no_memory(tmp_path: Path) -> None:
    raw = json.loads((make_tiny_model(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"num_hidden_layers": 10**9}))
    with pytest.raises(ModelError, match="num_hidden_layers"):
        load_config(tmp_path)
