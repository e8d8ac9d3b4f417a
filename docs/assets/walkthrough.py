"""Writes the frames of the page's walkthrough: four requests through the real engine, with a runner that only counts.

Run by `make docs`. A test compares the file with what this module makes.
"""

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from radixserve.cache.events import Acquired, CacheEvent, Evicted, Published, Released, Split
from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.limits import Limits
from radixserve.observe.mirror import Mirror
from radixserve.observe.watch import Watch
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler.events import Admitted, Admitting, SchedulerEvent
from radixserve.server.cache.view import CacheView, slot_ranges
from radixserve.tokens import as_ids, token_bytes

FILE = Path(__file__).parents[2] / "src/radixserve/server/cache/ui/walkthrough.json"
PROMPTS = ("Why my code throws errors", "Why GPU memory runs out", "Why my code is slow", "Why my code won't compile")
WORDS = list(dict.fromkeys(word for prompt in PROMPTS for word in prompt.split()))


class Words:
    """A tokenizer to which a word is a token."""

    token_bytes: ClassVar = [f" {word}".encode() for word in WORDS]


class Story:
    """Follows an engine and keeps a frame of each event that is worth one: what changed, and words for it."""

    def __init__(self) -> None:
        limits = Limits(vocab_size=len(WORDS), max_context_len=8, num_slots=11, page_size=1)
        info = EngineInfo(model="counting", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
        self.engine = assemble(EngineConfig(max_running=1, decode_reserve=0), info, CountingRunner())
        self.watch = Watch(self.engine.scheduler, self.engine.pins)
        self.engine.cache.listeners.append(self.on_cache)
        self.engine.scheduler.listeners.append(self.on_scheduler)
        self.view = CacheView(Words(), redacted=False)  # type: ignore[arg-type]
        self.mirror = Mirror(self.watch.snapshot())
        self.frames: list[dict[str, Any]] = []
        self.words: list[str] = []
        self.cached = self.computed = 0
        self.keep("snapshot", self.view.snapshot(self.mirror), "A pool of eleven slots, all free. A word is a token here.")

    def ask(self, prompt: str) -> None:
        """One request that generates one token."""
        self.words, self.cached, self.computed = prompt.split(), 0, 0
        ids = token_bytes([WORDS.index(word) for word in self.words])
        self.engine.receive(GenerateRequest(prompt, ids, SamplingParams(max_tokens=1)))
        self.engine.step()

    def on_scheduler(self, event: SchedulerEvent) -> None:
        match event:
            case Admitting(req):
                found = self.text(req.prompt[: self.engine.cache.match(req.prompt[:-4]).cached_len * 4])
                walked = f"Walking down the tree, it finds “{found}”" if found else "Nothing of it is cached"
                self.tell(f"A request arrives. {walked}.")
            case Admitted(req):
                assert req.lease is not None
                self.computed = 5 - self.cached
                slots = runs(req.lease.slots[req.lease.tree_len :].tobytes())
                self.tell(f"The other {self.computed} tokens take slots {slots}. Only they are computed." if self.cached else
                          f"Its {self.computed} tokens take slots {slots} and are computed.")  # fmt: skip

    def on_cache(self, event: CacheEvent) -> None:
        match event:
            case Split():
                self.tell("The match ends inside a node. The node splits in two; no KV moves.")
            case Acquired(serial=serial):
                self.cached = sum(len(node.slots) // 4 for node in self.path(serial))
                if self.cached:
                    self.tell(f"{self.cached} of 5 tokens are reused. Their path is locked: nothing can evict it now.")
            case Evicted(serial=serial, tokens=tokens, last_access_time=time):
                self.tell(f"No slot is free. The leaf not used for longest (since time {time}), “{self.text(tokens)}”, goes; "
                          f"slots {runs(self.mirror.nodes[serial].slots)} are free again.")  # fmt: skip
            case Published():
                self.tell("What was computed becomes a branch of the tree.")
            case Released():
                self.tell("The answer is given. The path is unlocked and stays, until its room is needed.")

    def tell(self, caption: str) -> None:
        """A frame of what changed since the last."""
        news = self.watch.news()
        assert news is not None
        self.keep("change", self.view.change(self.mirror, self.mirror.apply(news)), caption)

    def keep(self, kind: str, data: dict[str, Any], caption: str) -> None:
        for node in data["nodes"]:
            if "text" in node:
                node["text"] = node["text"].strip()
        prompt = {"words": self.words, "cached": self.cached, "computed": self.computed}
        self.frames.append({"kind": kind, "data": data, "caption": caption, "prompt": prompt})

    def path(self, serial: int) -> list[Any]:
        return self.mirror.path(serial) if serial in self.mirror.nodes else []

    def text(self, tokens: bytes) -> str:
        return " ".join(WORDS[i] for i in as_ids(tokens))


def runs(slots: bytes) -> str:
    """Slots as a reader takes them in: 1–5, 8."""  # noqa: RUF002
    return ", ".join(f"{first}–{last}" if first < last else f"{first}" for first, last in slot_ranges(slots))  # noqa: RUF001


def walkthrough() -> bytes:
    """The content of the file."""
    story = Story()
    for prompt in PROMPTS:
        story.ask(prompt)
    return b"[" + b",\n".join(msgspec.json.encode(frame) for frame in story.frames) + b"]\n"


if __name__ == "__main__":
    FILE.write_bytes(walkthrough())
