"""How often requests were passed over, against a count of each."""

from hypothesis import given
from hypothesis import strategies as st

from radixserve.req import Req, token_bytes
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler.admission import Candidate
from radixserve.scheduler.passes import Passes

actions = st.tuples(st.sampled_from(["add", "add", "admit", "admit", "remove"]), st.integers(0, 30))


@given(st.lists(actions, min_size=20, max_size=80), st.integers(1, 4))
def test_counts_kept_as_differences_starve_whom_single_counts_would(actions: list[tuple[str, int]], most: int) -> None:
    passes, counts, params = Passes(most), dict[Candidate, int](), SamplingParams(max_tokens=1)
    for number, (action, choice) in enumerate(actions):
        if action == "add":
            candidate = Candidate(Req(str(number), number, token_bytes([1]), 1, params, 1, frozenset()))
            passes.add(candidate)
            counts[candidate] = 0
        elif counts:
            candidate = list(counts)[choice % len(counts)]
            del counts[candidate]
            if action == "remove":
                passes.remove(candidate)
                continue
            for other in counts:
                counts[other] += other.req.arrival < candidate.req.arrival
            starved = [other for other, count in counts.items() if count >= most]
            assert passes.admit(candidate) == starved
            for other in starved:
                del counts[other]
