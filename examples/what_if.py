"""Record the requests of an engine, then simulate them with larger and smaller caches, and with another eviction policy."""

import tempfile
from pathlib import Path

from radixserve import LLM, SamplingParams
from radixserve.simulator.options import SimulateOptions
from radixserve.simulator.whatif import WhatIf, read

MANUALS = [f"You answer questions about the {thing}. Be brief, be kind, and never guess. " * 4 for thing in ("car", "boat", "bike")]
QUESTIONS = ["Where is the horn?", "How do I stop?", "What does it weigh?", "Who made it?"]

with tempfile.TemporaryDirectory() as folder:
    recording = Path(folder) / "run.jsonl"
    llm = LLM(num_slots=400, record=str(recording))
    for question in QUESTIONS:
        for manual in MANUALS:
            llm.generate(manual + question, SamplingParams(max_tokens=8))

    subject = read(recording)  # replays it first, and checks every step
    print(f"replayed {subject.replayed_steps} steps: the same batches, hits and evictions")
    what_if = WhatIf(subject, SimulateOptions(num_slots="200,300,400", policy="lru,lfu"))
    for found in what_if.predictions(progress=lambda: None):
        setting = found.setting
        print(f"{setting.num_slots} slots, {setting.policy}: {found.hit_rate:.0%} reused, {found.optimal_hit_rate:.0%} possible")
    print(f"an infinite cache: {found.infinite_hit_rate:.0%}")
