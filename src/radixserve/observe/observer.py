"""What an engine notes of its requests and its cache, beyond the totals of its steps. Nothing it does changes a decision."""

from radixserve.explanation import Explanation
from radixserve.observe.explain import Explainer
from radixserve.scheduler.scheduler import Scheduler


class Observer:
    """Listens to one scheduler and its cache, from their start on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._explainer = Explainer(scheduler)

    def explanations(self, request_id: str) -> list[Explanation]:
        """Of a recent request, one a prompt and choice; none if it is unknown or forgotten."""
        return self._explainer.find(request_id)
