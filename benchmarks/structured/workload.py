"""The requests of `python -m benchmarks.structured`: short notes about people, each to become a
record as in the examples of one long prompt.

The prompt's beginning (task, schema, worked examples) is the same for all; the note differs. Made from a seed, the same everywhere.
"""

import json
import random
from dataclasses import dataclass
from typing import Any

CITIES = ("Lisbon", "Nairobi", "Oslo", "Lima", "Hanoi", "Toronto")
JOBS = ("nurse", "teacher", "engineer", "farmer", "painter", "pilot")
LANGUAGES = ("English", "French", "Spanish", "Swahili", "Vietnamese", "Norwegian")
NAMES = ("Ana Costa", "Bo Larsen", "Chidi Okoro", "Dana Levi", "Emil Roth", "Fatou Diop", "Gus Moore", "Hoa Tran")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 24},
        "age_in_years": {"type": "integer", "minimum": 0, "maximum": 120},
        "home": {
            "type": "object",
            "properties": {"city": {"enum": list(CITIES)}, "owns_property": {"type": "boolean"}},
            "required": ["city", "owns_property"],
            "additionalProperties": False,
        },
        "occupation": {"enum": list(JOBS)},
        "spoken_languages": {"type": "array", "items": {"enum": list(LANGUAGES)}, "minItems": 1, "maxItems": 2},
        "currently_employed": {"type": "boolean"},
    },
    "required": ["full_name", "age_in_years", "home", "occupation", "spoken_languages", "currently_employed"],
    "additionalProperties": False,
}

TASK = (
    "You turn notes about people into records. Answer with one JSON object and nothing else. The record has the person's full "
    "name, age in years, home, occupation, spoken languages and whether they are employed now. The schema is:\n"
)


@dataclass(frozen=True)
class Note:
    """What a request asks about, and the record that a careful reader would make of it."""

    text: str
    record: dict[str, Any]


def make_notes(count: int, seed: int) -> list[Note]:
    """`count` notes, no two alike."""
    rng = random.Random(seed)
    return [_note(rng, number) for number in range(count)]


def conversation(note: Note, examples: list[Note]) -> list[dict[str, Any]]:
    """A chat that asks for the record of a note, after the task and the worked examples."""
    worked = "\n".join(f"Note: {example.text}\nRecord: {json.dumps(example.record)}" for example in examples)
    system = f"{TASK}{json.dumps(SCHEMA)}\n\nExamples:\n{worked}"
    return [{"role": "system", "content": system}, {"role": "user", "content": f"Note: {note.text}\nRecord:"}]


def _note(rng: random.Random, number: int) -> Note:
    name, age, city, job = rng.choice(NAMES), rng.randint(20, 79), rng.choice(CITIES), rng.choice(JOBS)
    languages = rng.sample(LANGUAGES, 2)
    owns, works = rng.random() < 0.5, rng.random() < 0.5
    text = (
        f"No. {number}. {name} is {age} and lives in {city}, in {'a house of their own' if owns else 'a rented room'}. "
        f"By trade a {job}, {'at work every day' if works else 'out of work at the moment'}. Speaks {' and '.join(languages)}."
    )
    record = {
        "full_name": name,
        "age_in_years": age,
        "home": {"city": city, "owns_property": owns},
        "occupation": job,
        "spoken_languages": languages,
        "currently_employed": works,
    }
    return Note(text, record)
