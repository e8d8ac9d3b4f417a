"""`radixserve info`: what to say about a machine when asking for help."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import torch
from rich.console import Console
from rich.table import Table

import radixserve
from radixserve import kernels
from radixserve.cli.options import JsonFlag
from radixserve.cpus import usable_cpus
from radixserve.models.registry import BUILT_IN, cache_dir, cached

PACKAGES = ("torch", "tokenizers", "safetensors", "msgspec", "pyzmq", "starlette", "uvicorn")


def info(*, as_json: JsonFlag = False) -> None:
    """Prints versions, machine and models."""
    facts = {"radixserve": radixserve.__version__, **{name: version(name) for name in PACKAGES}, **_machine(), **_models()}
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(name, value)
    Console().print(table)


def _machine() -> dict[str, str]:
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cpu threads": str(usable_cpus()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "cuda": ", ".join(gpus) or "none",
        "kernels": kernels.NOT_BUILT or f"native {kernels.level()}",
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _models() -> dict[str, str]:
    places = {name: cached(name) for name in BUILT_IN}
    return {
        "model cache": str(cache_dir()),
        **{name: str(place) if place else f"not here yet: radixserve pull {name}" for name, place in places.items()},
    }
