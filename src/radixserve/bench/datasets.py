"""From options to a workload."""

from dataclasses import fields
from pathlib import Path

from radixserve.bench.agent import agent_miniswe
from radixserve.bench.dialogues import mt_bench_101, openai_messages
from radixserve.bench.mooncake import mooncake
from radixserve.bench.options import ServeBenchOptions
from radixserve.bench.synthetic import generated_shared_prefix, prefix_repetition
from radixserve.bench.workloads import Workload
from radixserve.config import check_at_least, check_can_write
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer

DEFAULT_PREFIX_REPETITION_PROMPTS = 100


def load_workload(options: ServeBenchOptions) -> Workload:
    """The workload that the options describe. Raises ConfigError for a missing or unreadable file or lengths that can't be."""
    _check(options)
    o = options
    match o.dataset:
        case "generated-shared-prefix":
            workload = generated_shared_prefix(
                num_groups=o.gsp_num_groups,
                prompts_per_group=o.gsp_prompts_per_group,
                system_prompt_len=o.gsp_system_prompt_len,
                question_len=o.gsp_question_len,
                output_len=o.gsp_output_len,
                vocab_size=o.vocab_size,
                seed=o.seed,
            )
            return Workload(workload.name, workload.sessions[: o.num_prompts])
        case "prefix-repetition":
            return prefix_repetition(
                num_prompts=DEFAULT_PREFIX_REPETITION_PROMPTS if o.num_prompts is None else o.num_prompts,
                num_prefixes=o.prefix_repetition_num_prefixes,
                prefix_len=o.prefix_repetition_prefix_len,
                suffix_len=o.prefix_repetition_suffix_len,
                output_len=o.prefix_repetition_output_len,
                vocab_size=o.vocab_size,
                seed=o.seed,
            )
        case "mooncake":
            return mooncake(_path(o), num_prompts=o.num_prompts, max_len=o.max_len, vocab_size=o.vocab_size, seed=o.seed)
        case "openai-messages":
            return openai_messages(_path(o), num_prompts=o.num_prompts, output_len=o.output_len, ignore_eos=o.ignore_eos)
        case "mt-bench-101":
            return mt_bench_101(_path(o), num_prompts=o.num_prompts, output_len=o.output_len, ignore_eos=o.ignore_eos)
        case "agent-miniswe":
            return _agent_miniswe(o)


def _agent_miniswe(options: ServeBenchOptions) -> Workload:
    if options.tokenizer is None:
        raise ConfigError("agent-miniswe needs the served model's tokenizer to cut sessions: set --tokenizer")
    return agent_miniswe(
        _path(options),
        tokenizer=Tokenizer.load(options.tokenizer),
        num_prompts=options.num_prompts,
        max_len=options.max_len,
        output_len=options.output_len,
        ignore_eos=options.ignore_eos,
    )


def _path(options: ServeBenchOptions) -> Path:
    if options.dataset_path is None:
        raise ConfigError(f"{options.dataset} needs a file: set --dataset-path")
    folders_too = options.dataset == "agent-miniswe" and options.dataset_path.is_dir()
    if not (options.dataset_path.is_file() or folders_too):
        raise ConfigError(f"--dataset-path {options.dataset_path} is not a file")
    return options.dataset_path


def _check(options: ServeBenchOptions) -> None:
    for field in fields(options):
        value = getattr(options, field.name)
        if type(value) is int:
            check_at_least(field.name, value, 0 if field.name == "seed" else 1)
    if options.request_rate is not None and not options.request_rate > 0:
        raise ConfigError(f"--request-rate is {options.request_rate}: must be above 0; leave it out to start each when one ends")
    check_can_write("output_file", options.output_file)
