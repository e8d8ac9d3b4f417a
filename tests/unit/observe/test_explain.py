"""Every reason for which a match can end is found, and told without telling what another's salt hides."""

from typing import Any

from radixserve.engine.engine import Engine
from radixserve.explanation import Explanation
from radixserve.ipc import Explained, ExplainRequest, GenerateRequest, Output
from radixserve.observe import explain, prefix_memory
from radixserve.observe.explain_text import describe
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine

HELLO = [1, 2, 3, 4, 5, 6]


class Asked:
    """An engine whose requests all ask for their explanation."""

    def __init__(self, num_slots: int = 64, page_size: int = 1, **settings: Any) -> None:
        self.engine: Engine = hash_engine(num_slots, page_size, observed=True, **settings)
        self.found: dict[str, Explanation] = {}

    def send(self, name: str, prompt: list[int], max_tokens: int = 1, **options: Any) -> None:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        message = GenerateRequest(name, token_bytes(prompt), params, request_id=f"client-{name}", explain_cache=True, **options)
        self.engine.receive(message)

    def run(self) -> None:
        while self.engine.has_work:
            for output in self.engine.step():
                if isinstance(output, Output) and output.explanation is not None:
                    assert output.finish_reason is not None
                    self.found[output.rid] = output.explanation
                    assert output.explanation.cached_tokens == output.cached_tokens

    def ask(self, name: str, prompt: list[int], **options: Any) -> Explanation:
        self.send(name, prompt, **options)
        self.run()
        return self.found[name]


def test_all_but_the_last_token_is_capped() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    found = asked.ask("b", HELLO)
    assert (found.reason, found.cached_tokens, found.prompt_tokens) == ("capped", 5, 6)
    assert describe(found).startswith("5 of 6 prompt tokens were reused: all but the last")


def test_what_was_never_seen_names_the_place_and_the_nearest_branch() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    found = asked.ask("b", [1, 2, 3, 40, 41])
    assert (found.reason, found.cached_tokens, found.before, found.after) == ("never_seen", 3, (1, 2, 3), (40, 41))
    assert found.branch is not None
    assert (found.branch.token_ids, found.branch.num_tokens, found.branch.admissions_ago) == ((4, 5, 6), 3, 1)


def test_evicted_says_when_and_for_whom() -> None:
    asked = Asked(num_slots=12)
    asked.ask("a", HELLO)
    asked.ask("b", list(range(10, 22)))
    asked.ask("c", [30])
    found = asked.ask("d", [*HELLO, 7])
    assert (found.reason, found.cached_tokens, found.missed_tokens) == ("evicted", 0, 6)
    assert found.loss is not None
    assert (found.loss.admissions_ago, found.loss.unused_for, found.loss.request_id) == (2, 1, "client-b")
    assert "evicted 2 admissions ago" in describe(found)


def test_what_went_for_another_namespace_s_request_does_not_name_it() -> None:
    asked = Asked(num_slots=12)
    asked.ask("a", HELLO)
    asked.ask("b", list(range(10, 22)), cache_salt="other")
    found = asked.ask("c", HELLO)
    assert found.reason == "evicted"
    assert found.loss is not None
    assert found.loss.request_id is None


def test_an_evicted_end_of_an_edge_is_found_where_its_beginning_came_back() -> None:
    asked = Asked(num_slots=14)
    asked.ask("a", HELLO)
    asked.ask("b", list(range(10, 24)))
    asked.ask("c", [1, 2, 3, 44])
    found = asked.ask("d", [*HELLO, 7])
    assert (found.reason, found.cached_tokens, found.missed_tokens) == ("evicted", 3, 3)


def test_another_namespace_is_told_where_the_request_could_have_asked_there() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    found = asked.ask("b", HELLO, cache_salt="mine")
    assert (found.reason, found.missed_tokens, found.adapter, found.salted) == ("other_namespace", 5, None, False)


def test_what_is_behind_a_salt_is_never_told() -> None:
    asked = Asked()
    asked.ask("a", HELLO, cache_salt="secret")
    plain, other = asked.ask("b", HELLO), asked.ask("c", [9, *HELLO], cache_salt="other")
    assert (plain.reason, plain.branch) == ("never_seen", None)
    assert (other.reason, other.branch) == ("never_seen", None)


def test_page_rounding_is_what_did_not_fill_a_page() -> None:
    asked = Asked(page_size=4)
    asked.ask("a", HELLO)
    found = asked.ask("b", [*HELLO, 7, 8, 9])
    assert (found.reason, found.cached_tokens, found.missed_tokens) == ("page_rounding", 4, 2)


def test_still_being_computed_names_the_other_request() -> None:
    asked = Asked()
    asked.send("a", HELLO)
    asked.send("b", [1, 2, 3, 4, 9, 9])
    asked.run()
    assert asked.found["a"].reason == "never_seen"
    found = asked.found["b"]
    assert (found.reason, found.missed_tokens, found.computed_by) == ("computing", 4, "client-a")


def test_an_answer_that_is_not_done_is_still_being_computed() -> None:
    asked = Asked()
    asked.send("a", [1, 2, 3], max_tokens=12)
    for _ in range(5):
        asked.engine.step()
    (req,) = asked.engine.scheduler.running
    asked.send("b", [1, 2, 3, *req.output_ids[:3], 49])
    asked.run()
    assert (asked.found["b"].reason, asked.found["b"].missed_tokens) == ("computing", 3)


def test_a_flush_is_told_from_an_eviction() -> None:
    asked = Asked(num_slots=12)
    asked.ask("gone", HELLO)
    asked.ask("room", list(range(10, 22)))
    asked.ask("kept", [40, 41, 42, 43])
    asked.engine.cache.flush()
    kept, gone = asked.ask("a", [40, 41, 42, 49]), asked.ask("b", HELLO)
    assert (kept.reason, kept.missed_tokens, kept.loss) == ("flushed", 3, None)
    assert describe(kept).endswith("the next 3 tokens went when the cache was flushed")
    assert gone.reason == "evicted"
    assert asked.ask("c", [7, 7]).reason == "never_seen"


def test_the_latest_loss_is_told() -> None:
    asked = Asked(num_slots=12)
    asked.ask("a", HELLO)
    asked.ask("b", list(range(10, 22)))
    asked.ask("c", HELLO)
    asked.engine.cache.flush()
    assert asked.ask("d", HELLO).reason == "flushed"
    asked.ask("e", list(range(10, 22)))
    found = asked.ask("f", HELLO)
    assert (found.reason, found.loss and found.loss.request_id) == ("evicted", "client-e")


def test_evicted_by_hand_is_told_from_making_room() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    ((_, node),) = asked.engine.cache.walk()
    asked.engine.cache.evict_below(node)
    by_hand = asked.ask("b", HELLO)
    assert by_hand.loss is not None
    assert by_hand.loss.by_hand
    assert describe(by_hand).endswith("by hand")


def test_what_is_scored_is_computed_though_it_is_cached() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    scored = SamplingParams(max_tokens=1, prompt_logprobs=0, logprob_start_len=3)
    asked.engine.receive(GenerateRequest("b", token_bytes(HELLO), scored, explain_cache=True))
    asked.run()
    found = asked.found["b"]
    assert (found.reason, found.cached_tokens) == ("prompt_logprobs", 3)
    assert "log probabilities of the rest" in describe(found)


def test_choices_of_one_request_wait_for_each_other_and_say_so() -> None:
    asked = Asked()
    for number, prompt in enumerate(([1, 2, 3, 4, 5], [1, 2, 3, 4, 9, 9])):
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        message = GenerateRequest(str(number), token_bytes(prompt), params, request_id="both", explain_cache=True)
        asked.engine.receive(message)
    asked.run()
    assert "another prompt of this request was still computing the next 4 tokens" in describe(asked.found["1"])


def test_one_id_sent_for_ever_is_forgotten_like_any_other(monkeypatch: Any) -> None:
    monkeypatch.setattr(explain, "NUM_EXPLANATIONS", 3)
    asked = Asked()
    for number in range(5):
        asked.engine.receive(GenerateRequest(str(number), token_bytes([number]), SamplingParams(max_tokens=1), request_id="one"))
        asked.run()
    asked.engine.receive(ExplainRequest("q", "one"))
    (found,) = asked.engine.step()
    assert isinstance(found, Explained)
    assert [explanation.after for explanation in found.explanations] == [(2,), (3,), (4,)]


def test_circumstances_are_forgotten_before_prefixes(monkeypatch: Any) -> None:
    monkeypatch.setattr(prefix_memory, "NUM_EVICTIONS", 1)
    asked = Asked(num_slots=12)
    asked.ask("a", HELLO)
    for number, first in enumerate((10, 23, 36)):
        asked.ask(str(number), list(range(first, first + 12)))
    assert asked.ask("b", HELLO).reason == "unknown"


def test_without_a_cache_that_is_the_reason() -> None:
    asked = Asked(prefix_cache=False)
    asked.ask("a", HELLO)
    assert asked.ask("b", HELLO).reason == "disabled"


def test_recent_requests_can_be_asked_about_afterwards() -> None:
    asked = Asked()
    asked.ask("a", HELLO)
    asked.engine.receive(ExplainRequest("q", "client-a"))
    asked.engine.receive(ExplainRequest("r", "nobody"))
    assert asked.engine.step() == [Explained("q", [asked.found["a"]]), Explained("r", [])]


def test_only_who_asks_is_answered() -> None:
    engine = hash_engine(64, observed=True)
    engine.receive(GenerateRequest("a", token_bytes(HELLO), SamplingParams(max_tokens=1)))
    assert [output.explanation for output in engine.step() if isinstance(output, Output)] == [None]
