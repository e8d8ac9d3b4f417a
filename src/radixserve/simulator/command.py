"""What `radixserve simulate` does, from the file to the printed table."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from radixserve.cache.eviction import POLICIES
from radixserve.simulator.options import SimulateOptions, names, sizes
from radixserve.simulator.plot import plot
from radixserve.simulator.report import as_json, print_predictions, print_serial
from radixserve.simulator.requests import SimRequest, to_trace
from radixserve.simulator.serial import BELADY, PORTIONS, SerialResult, num_unique, serial
from radixserve.simulator.traces import PAGE_LEN, page_prompts, write_trace
from radixserve.simulator.whatif import Subject, WhatIf, read


def run(path: Path, options: SimulateOptions) -> int:
    """Carries one command out. Raises ConfigError for a file or an option that can't be."""
    options.check()
    subject = read(path)
    console = Console(stderr=True, highlight=False)
    if subject.replayed_steps is not None:
        console.print(f"replayed {subject.replayed_steps:,} recorded steps: the same batches, hits and evictions", style="dim")
    if options.export is not None:
        write_trace(options.export, to_trace(subject.requests))
        console.print(f"wrote {len(subject.requests):,} requests to {options.export}", style="dim", markup=False)
    elif options.serial:
        results = list(_serial(subject.requests, options))
        if options.json:
            print(as_json([], results))
        else:
            print_serial(results)
    else:
        _predict(subject, options, console)
    return 0


def _serial(requests: Sequence[SimRequest], options: SimulateOptions) -> Iterator[SerialResult]:
    """Every policy by every portion, and Belady, at every size."""
    prompts = page_prompts(request.hash_ids for request in to_trace(requests))
    whole = num_unique(prompts) * PAGE_LEN
    for num_slots in sizes("--num-slots", options.num_slots or "1%,5%,10%", whole):
        num_pages = max(num_slots // PAGE_LEN, 1)
        for policy in names("--policy", options.policy or "lru", sorted(POLICIES)):
            for portion in PORTIONS:
                yield serial(prompts, num_pages, policy, portion)
        yield serial(prompts, num_pages, BELADY)


def _predict(subject: Subject, options: SimulateOptions, console: Console) -> None:
    what_if = WhatIf(subject, options)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(subject.requests) * len(what_if.settings))
        predictions = list(what_if.predictions(lambda: bar.advance(task)))
    if options.plot is not None:
        plot(predictions, options.plot)
    if options.json:
        print(as_json(predictions, []))
    else:
        longest = max(request.prompt_len + request.output_len for request in subject.requests)
        print_predictions(predictions, what_if.cost, longest)
