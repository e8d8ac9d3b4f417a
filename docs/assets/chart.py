"""Draws docs/assets/throughput.png from a run of `python -m benchmarks.compare`: `python docs/assets/chart.py RESULT.json`."""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

FILE = Path(__file__).parent / "throughput.png"
SERVERS = {"ours": ("RadixServe", "#2f6fde"), "vllm": ("vLLM (CPU build)", "#9aa4b2"), "llama.cpp": ("llama.cpp", "#d3d8df")}
WORKLOADS = {
    "shared": "8 at once on one\nnew prefix",
    "warm": "8 at once on one\ncached prefix",
    "unique": "8 at once,\nnothing shared",
    "single": "1 stream",
    "decode8": "8 streams",
    "prefill": "prompt tokens\nread",
}


def draw(result: Path) -> None:
    """Bars of tokens a second, each workload in proportion to RadixServe's."""
    medians = json.loads(result.read_text())["medians"]
    rates = {(row["workload"], row["server"]): row["tokens_per_s"] for row in medians}
    figure, axes = plt.subplots(figsize=(9, 3.2), dpi=160)
    width = 0.27
    for index, (server, (name, color)) in enumerate(SERVERS.items()):
        places = [position + (index - 1) * width for position in range(len(WORKLOADS))]
        heights = [rates[workload, server] / rates[workload, "ours"] for workload in WORKLOADS]
        bars = axes.bar(places, heights, width * 0.94, label=name, color=color)
        axes.bar_label(bars, [f"{rates[workload, server]:,.0f}" for workload in WORKLOADS], fontsize=7, padding=2, color="#3c4350")
    axes.set_xticks(range(len(WORKLOADS)), WORKLOADS.values(), fontsize=8)
    axes.set_yticks([])
    axes.set_ylim(0, 1.15)
    axes.set_title("Tokens a second: SmolLM2-135M, bfloat16, 2 CPU cores", fontsize=9, loc="left", color="#3c4350", y=1.04)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right", bbox_to_anchor=(1, 1.16))
    figure.savefig(FILE, bbox_inches="tight", facecolor="white")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
