"""GGUF files mean the same as the directories they were made from, and broken ones are refused."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from radixserve.errors import ModelError
from radixserve.models.gguf_file import GGUFFile
from radixserve.models.registry import resolve
from radixserve.models.rope import inverse_frequencies
from radixserve.models.source import load_config, open_checkpoint
from tests.tiny_gguf import make_tiny_gguf
from tests.tiny_models import make_tiny_model


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_file_has_the_config_and_weights_of_its_directory(tmp_path: Path, family: str) -> None:
    directory = make_tiny_model(tmp_path / "hf", family)
    expected_config, expected = open_checkpoint(directory)
    config, checkpoint = open_checkpoint(make_tiny_gguf(tmp_path / "model.gguf", directory))
    assert config.rms_norm_eps == pytest.approx(expected_config.rms_norm_eps)
    for field in set(config.__dataclass_fields__) - {"rms_norm_eps"}:
        assert getattr(config, field) == getattr(expected_config, field), field
    assert checkpoint.shapes == expected.shapes
    assert all(torch.equal(checkpoint.read(name), expected.read(name)) for name in expected.shapes)


@pytest.mark.parametrize(
    "dtype", [GGMLQuantizationType.F16, GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1]
)
def test_quantised_tensors_come_back_close(tmp_path: Path, dtype: GGMLQuantizationType) -> None:
    directory = make_tiny_model(tmp_path / "hf")
    _, expected = open_checkpoint(directory)
    _, checkpoint = open_checkpoint(make_tiny_gguf(tmp_path / "model.gguf", directory, dtype))
    for name in expected.shapes:
        values, wanted = checkpoint.read(name), expected.read(name)
        assert (values - wanted).norm() < 0.1 * wanted.norm(), name


def test_llama3_frequencies_come_from_the_tensor_that_states_them(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "hf", "llama3")
    expected, config = load_config(directory), load_config(make_tiny_gguf(tmp_path / "model.gguf", directory))
    frequencies = inverse_frequencies(config.rope, config.head_dim)
    torch.testing.assert_close(frequencies, inverse_frequencies(expected.rope, expected.head_dim))
    assert not torch.allclose(
        frequencies, inverse_frequencies(load_config(make_tiny_model(tmp_path / "plain")).rope, config.head_dim)
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    return make_tiny_gguf(folder / "whole.gguf", make_tiny_model(folder / "hf"))


def test_the_header_reads_as_the_gguf_package_reads_it(whole: Path) -> None:
    ours, theirs = GGUFFile(whole), GGUFReader(whole)
    assert ours.metadata == {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert {name: info.offset for name, info in ours.tensors.items()} == {t.name: t.data_offset for t in theirs.tensors}
    assert all(np.array_equal(ours.read(t.name).ravel(), np.asarray(t.data).ravel()) for t in theirs.tensors)


@given(st.data())
def test_a_file_cut_anywhere_is_refused(whole: Path, data: st.DataObject) -> None:
    content = whole.read_bytes()
    cut = whole.with_name("cut.gguf")
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        GGUFFile(cut)


@given(st.integers(8, 2000), st.binary(min_size=8, max_size=8))
def test_a_damaged_header_never_raises_anything_else(whole: Path, at: int, damage: bytes) -> None:
    content = bytearray(whole.read_bytes())
    content[at : at + len(damage)] = damage
    damaged = whole.with_name("damaged.gguf")
    damaged.write_bytes(content)
    with contextlib.suppress(ModelError):
        open_checkpoint(damaged)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK" + bytes(100))
    with pytest.raises(ModelError, match="not a GGUF file"):
        GGUFFile(path)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"'mamba'.*llama, qwen2, qwen3"):
        load_config(tmp_path / "model.gguf")


def split(whole: Path, folder: Path) -> list[Path]:
    """The same model in two files, as llama.cpp's gguf-split writes it: the first has the metadata, both have tensors."""
    reader = GGUFReader(whole)
    paths = [folder / f"model-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, path in enumerate(paths):
        writer = GGUFWriter(path, "llama")
        if number == 0:
            file = GGUFFile(whole)
            for key, value in file.metadata.items():
                if key == "general.architecture" or key.startswith("GGUF."):
                    continue
                if isinstance(value, list):
                    writer.add_array(key, value)
                elif isinstance(value, str):
                    writer.add_string(key, value)
                elif isinstance(value, float):
                    writer.add_float32(key, value)
                else:
                    writer.add_uint32(key, value)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        for index, tensor in enumerate(reader.tensors):
            if index % 2 == number:
                writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_the_files_of_a_split_model_are_read_as_one(whole: Path, tmp_path: Path) -> None:
    paths = split(whole, tmp_path)
    expected_config, expected = open_checkpoint(whole)
    assert {resolve(str(path)) for path in paths} == {paths[0]}
    config, checkpoint = open_checkpoint(paths[0])
    assert config == expected_config
    assert checkpoint.shapes == expected.shapes
    assert all(torch.equal(checkpoint.read(name), expected.read(name)) for name in expected.shapes)


def test_a_file_of_a_split_model_without_its_others_is_refused(whole: Path, tmp_path: Path) -> None:
    paths = split(whole, tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelError, match=r"one of 2 files of a model, and model-00002-of-00002\.gguf is not beside it"):
        resolve(str(paths[0]))
