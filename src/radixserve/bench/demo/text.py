"""The text of the demo: its own, varied, and the same for the same seed.

Long texts are made from sentence patterns filled with names, things and numbers, so that no two people's notes are alike. They
come as endless streams of sentences: whoever needs an exact number of tokens takes enough of them and cuts.
"""

import random
from collections.abc import Iterator

SYSTEM_PROMPTS = (
    "You are the night desk of a small public library. Readers write to you when the doors are closed. Answer in plain, short "
    "sentences, say what you are unsure of, never invent a title, and name the shelf where a reader could look further. If a "
    "question has nothing to do with books or learning, answer it all the same as a patient neighbour would. Do not use lists, "
    "do not repeat the question, and finish with one thing that the reader might ask next.",
    "You help the crew of a coastal sailing school. Students ask about weather, knots, food and the sea. Safety comes first: if "
    "a plan sounds risky, say so before anything else, and say why. Use metric units and the names that sailors use, explained "
    "in brackets the first time. Keep each answer to what fits on a wet notepad, and be kind to those who are afraid.",
)

CHATS = (
    (
        "I want to start reading about the stars. Where should I begin?",
        "How far can I see without a telescope?",
        "Why do some stars look red and others blue?",
        "Is it true that the light I see is very old?",
        "My daughter is seven. What could we look at together?",
        "Thank you. What should I look up tomorrow?",
    ),
    (
        "We leave the harbour at dawn with a light wind from the west. What should we check first?",
        "One of us gets seasick. What helps?",
        "Which knot holds the boat to a ring on the quay?",
        "How do I tell that the tide has turned?",
        "The sky in the south is getting dark. Do we go on?",
        "What do we write into the log when we are back?",
    ),
    (
        "How did people keep food through the winter before there were fridges?",
        "Did salt cost a lot in those days?",
        "What is the difference between smoking and drying?",
        "Could I dry apples in my own oven?",
        "How long would they keep in a jar?",
        "Which book has old recipes for that?",
    ),
    (
        "Tomorrow is my first day on the boat and I can't swim well. Is that all right?",
        "What will the life jacket feel like in the water?",
        "What does the skipper mean by going about?",
        "Where should I sit so that I am not in the way?",
        "What do I do with my hands when the boat leans over?",
        "And if I am cold?",
    ),
    (
        "I have to give a talk about the history of paper. What is the oldest kind?",
        "How was it made by hand?",
        "When did it reach Europe?",
        "What did people write on before that?",
        "How can I show it to twenty pupils in ten minutes?",
        "What question will they surely ask me?",
    ),
    (
        "How do I plan the meals for five people on a boat for three days?",
        "Nobody eats meat. Does that change much?",
        "How much drinking water do we carry?",
        "The stove has one flame. What cooks quickly?",
        "What keeps without ice?",
        "Please sum up the shopping in one sentence.",
    ),
    (
        "Why does bread rise?",
        "What happens if I forget the salt?",
        "My dough stays flat in winter. What could be the reason?",
        "How do I keep a sourdough starter alive while I travel?",
        "Is whole grain flour harder to work with?",
        "Tell me one small experiment to try this weekend.",
    ),
    (
        "Fog is forecast for the afternoon. Should we sail in the morning?",
        "Which sounds do we make if it catches us?",
        "How do we find the buoy without seeing it?",
        "Our radio is weak. What else can call for help?",
        "How long does such fog usually stay?",
        "What would you teach the students about it?",
    ),
)

BRANCHES = (
    "Which single step changed the stock the most, and by how much?",
    "Write the next step in the same style.",
    "Explain the whole account to a child in three sentences.",
    "Find a step that could have been left out.",
    "Say what would be different if the first delivery had been twice as large.",
    "Name every step in which the stock went down.",
    "Check the last sum by another way of reckoning.",
    "Turn the account into one line of arithmetic.",
    "What was the smallest stock that was ever reached?",
    "Round all numbers to tens and repeat the end of the account.",
    "Who would want to read this account, and why?",
    "Give the account a title of four words.",
    "Which person handled the most crates?",
    "Write a question that this account answers.",
    "Describe the account as a rising and falling line.",
    "Say in one sentence whether the store should order more.",
)

NAMES = ("Ada", "Bruno", "Chidi", "Dora", "Emil", "Farah", "Goran", "Hana", "Ines", "Jonas", "Kemal", "Lotte", "Mira", "Nils")
THINGS = ("pears", "lamps", "bricks", "jars", "candles", "chairs", "ropes", "books", "tiles", "kettles", "blankets", "seeds")
PLACES = ("the harbour", "the mill", "the school", "the market", "the north gate", "the old station", "the hill farm", "the bakery")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

PROBLEMS = (
    (
        "{a} has {x} {t} and buys {y} more at {p}. How many {t} does {a} have now?",
        "Buying adds to what is there: {x} + {y} = {sum}. Going back, {sum} - {y} = {x}, as it should be",
        "sum",
    ),
    (
        "There are {big} {t} at {p}. {a} takes {x} of them to {q}. How many are left?",
        "What is taken away is subtracted: {big} - {x} = {rest}. Together again they make {rest} + {x} = {big}",
        "rest",
    ),
    (
        "{a} packs {x} boxes with {z} {t} in each. How many {t} are packed?",
        "Every box holds the same, so we multiply: {x} * {z} = {product}. Shared out again, {product} / {x} = {z}",
        "product",
    ),
    (
        "On {d} {a} carries {x} {t} to {p} and {b} carries {y}. How many {t} arrive?",
        "Both loads arrive, so we add them: {x} + {y} = {sum}. Without the load of {b} it would be {sum} - {y} = {x}",
        "sum",
    ),
    (
        "{a} and {b} share {product} {t} so that each of {z} helpers gets the same. How many does a helper get?",
        "Equal shares ask for a division: {product} / {z} = {x}. All shares together are {z} * {x} = {product}",
        "x",
    ),
    (
        "{a} sold {x} {t} on {d} and {z} times as many the day after. How many were sold on the second day?",
        "Times as many means to multiply: {z} * {x} = {product}. The first day is found again by {product} / {z} = {x}",
        "product",
    ),
    (
        "A cart holds {big} {t}. {x} fall off on the way to {p}, and {b} picks up none of them. How many reach {p}?",
        "What falls off does not arrive: {big} - {x} = {rest}. With the lost ones it would be {rest} + {x} = {big}",
        "rest",
    ),
)

RULES = (
    "Goods that go to {p} are loaded before {h} o'clock; whoever comes later waits for the van of the next morning.",
    "A crate of {t} is counted twice, once by {a} and once by whoever signs for it at {p}.",
    "No more than {x} {t} are stacked on one another, and never beside an open window.",
    "If {t} are missing, {a} is told on the same day and the shelf is marked with chalk until it is settled.",
    "On {d} the gate at {p} stays shut; deliveries are taken to {q} and fetched from there by hand.",
    "Broken {t} are kept for {x} days, so that the sender may look at them, and are then given to {q}.",
    "A customer who orders over {big} {t} speaks to {a} first, because such an order needs two carts and a second driver.",
    "The price of {t} is written on the board near the door, and it holds until the board is changed, not until somebody says so.",
    "Returns come with their slip; without a slip {a} may take back {x} pieces at most.",
    "When it rains, {t} are covered with sailcloth before they cross the yard to {p}.",
)

NOTES = (
    "On {d} {a} brought {x} {t} to {p}, {y} minutes late because the bridge was up.",
    "{b} asked twice about the {t} from {q}; I promised an answer by {d}.",
    "We counted {big} {t} in the morning and {rest} in the evening, so {x} must have gone to {p}.",
    "The slip for {z} crates of {t} is still with {a}, who was last seen near {q}.",
    "{a} thinks that the {t} should stand nearer to the door; {b} does not.",
    "Somebody at {p} paid for {y} {t} and fetched {x}, and nobody remembers why.",
    "It rained from {h} o'clock on, and {z} boxes of {t} had to be dried at {q}.",
    "A new driver took the road by {q} and saved {z} minutes on the way to {p}.",
    "{b} wants to send back {x} {t}, {z} of them broken, and has lost the slip.",
    "For {d} we need {y} more {t}, or {a} can't finish the order for {p}.",
)

LEDGER = (
    "{a} brings {n} crates from {p}.",
    "A cart from {p} unloads {n} crates, which {a} counts twice.",
    "{n} crates of {t} come in, signed for by {a}.",
    "{a} sends {n} crates to {p}.",
    "{n} crates leave with {a}, who takes the road by {p}.",
    "An order of {t} is packed by {a}: {n} crates go out.",
)  # the first half adds, the second takes away


def problem(rng: random.Random) -> tuple[str, str]:
    """A word problem and its worked answer."""
    values = _values(rng)
    question, working, result = rng.choice(PROBLEMS)
    opening = rng.choice(("Let us see.", "Step by step:", "We think first.", "In short:"))
    answer = f"{opening} {working.format_map(values)}. The answer is {values[result]}."
    return question.format_map(values), answer


def rules(rng: random.Random) -> Iterator[str]:
    """Rules of a warehouse, numbered, without end."""
    return _sentences(rng, RULES, "Rule {number}. ")


def notes(rng: random.Random, author: str) -> Iterator[str]:
    """One person's notes from a week at the warehouse, without end."""
    yield f"Notes of {author}.\n"
    yield from _sentences(rng, NOTES, "")


def ledger(rng: random.Random) -> Iterator[str]:
    """A worked account: each step states what happens and does the sum. Without end; the stock never goes below 100."""
    stock = rng.randrange(300, 600)
    yield f"The store opens with {stock} crates. We go through the week step by step and keep the sum.\n"
    number = 0
    while True:
        number += 1
        amount = rng.randrange(3, 95)
        comes_in = stock < 200 or rng.random() < 0.5
        half = len(LEDGER) // 2
        sentence = rng.choice(LEDGER[:half] if comes_in else LEDGER[half:]).format_map(_values(rng) | {"n": amount})
        after = stock + amount if comes_in else stock - amount
        yield f"Step {number}. {sentence} {stock} {'+' if comes_in else '-'} {amount} = {after}.\n"
        stock = after


def _sentences(rng: random.Random, patterns: tuple[str, ...], head: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield head.format(number=number) + rng.choice(patterns).format_map(_values(rng)) + "\n"


def _values(rng: random.Random) -> dict[str, str | int]:
    a, b = rng.sample(NAMES, 2)
    p, q = rng.sample(PLACES, 2)
    x, y, z = rng.randrange(3, 90), rng.randrange(3, 90), rng.randrange(2, 13)
    big = x + rng.randrange(5, 200)
    words: dict[str, str | int] = {
        "a": a,
        "b": b,
        "p": p,
        "q": q,
        "t": rng.choice(THINGS),
        "d": rng.choice(DAYS),
        "h": rng.randrange(6, 19),
    }
    return words | {"x": x, "y": y, "z": z, "big": big, "sum": x + y, "rest": big - x, "product": x * z}
