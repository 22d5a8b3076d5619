"""Tasks whose answer copies, quotes or edits what stands in the prompt, made from the texts with a seed.

They give prompt lookup something to find and teach the models to copy on request. Pure Python; knows no tokens.
"""

import random
import re

NAMES = ("John Mary Henry Alice Edward Margaret Robert Helen Arthur Clara Peter Susan Richard Emily Walter Ruth "
         "Frank Laura Hugh Agnes Oliver Martha Philip Nora Stephen Lucy Ralph Edith Simon Julia").split()
WORDS = ("value total items left right score index buffer parts limit offset source target entry amount width "
         "height queue store level order block frame chunk token label state branch number record").split()
STOP = set("def return self import from for in if else elif while not and or is None True False class print with as "
           "raise try except lambda yield pass break continue assert len range str int list dict set".split())


def sentences_of(paragraph):
    return [s for s in re.split(r"(?<=[.!?])\s+", paragraph) if len(s) > 20]


class Material:
    """Paragraphs, functions and dialogues cut out of the documents, to build tasks from."""

    def __init__(self, texts, split, rng):
        self.rng = rng
        books = [line.strip() for d in texts["books"][split] for line in d.split("\n") if 160 <= len(line) <= 1400]
        peps = [p.strip() for d in texts["peps"][split] for p in d.split("\n\n") if 160 <= len(p) <= 1200 and ". " in p]
        self.prose = rng.sample(books, min(len(books), 60_000))
        self.technical = peps
        self.functions = []
        for domain in ("algorithms", "sympy"):
            for document in texts[domain][split]:
                for part in re.split(r"\n(?=def |class )", document):
                    cut = part.split("\n\n\n")[0].rstrip()
                    if cut.startswith("def ") and 120 <= len(cut) <= 1100:
                        self.functions.append(cut)
        self.dialogues = [d for d in texts["dialogues"][split] if d.count("\n") >= 5]

    def passage(self, longest=900):
        pool = self.prose if self.rng.random() < 0.7 else self.technical
        text = self.rng.choice(pool)
        if len(text) <= longest:
            return text
        kept = ""
        for sentence in re.split(r"(?<=[.!?])\s+", text):
            if kept and len(kept) + len(sentence) > longest:
                break
            kept = f"{kept} {sentence}" if kept else sentence
        return kept[:longest].rstrip()

    def exchange(self):
        lines = self.rng.choice(self.dialogues).split("\n")
        count = self.rng.randint(3, 7)
        start = self.rng.randrange(max(1, len(lines) - count))
        return lines[start:start + count]


def repeat(m):
    p = (
        m.passage()
        if m.rng.random() < 0.7
        else m.rng.choice(m.functions) if m.rng.random() < 0.6 else "\n".join(m.exchange())
    )
    ask = m.rng.choice(["Repeat the following passage word for word.", "Copy the passage below exactly.",
                        "Write the following text again without any change.", "Repeat the passage."])
    return f"{ask}\n\nPassage:\n{p}\n\nRepeated passage:\n", p


def quote_paragraph(m):
    parts = [m.passage(420) for _ in range(m.rng.choice([2, 3]))]
    k = m.rng.randrange(len(parts))
    order = ["first", "second", "third"][k]
    body = "\n\n".join(parts)
    return f"{body}\n\nQuote the {order} paragraph above in full.\n\nQuote:\n", parts[k]


def rename_person(m):
    for _ in range(30):
        p = m.passage()
        names = [w for w in set(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,9}\b", p))]
        if names:
            break
    else:
        return repeat(m)
    old = max(sorted(names), key=p.count)
    new = m.rng.choice([n for n in NAMES if n != old])
    ask = m.rng.choice(
        [
            f'Rewrite the passage with the name "{old}" changed to "{new}".',
            f'Replace "{old}" by "{new}" in the passage.',
        ]
    )
    return f"{ask}\n\nPassage:\n{p}\n\nRewritten passage:\n", re.sub(rf"\b{old}\b", new, p)


def misspell(word, rng):
    i = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return word[:i] + word[i + 1] + word[i] + word[i + 2:]
    return word[:i] + word[i + 1:] if kind == 1 else word[:i] + word[i] + word[i:]


def correct(m):
    p = m.passage()
    words = p.split(" ")
    candidates = [i for i, w in enumerate(words) if w.isalpha() and w.islower() and len(w) > 4]
    for i in m.rng.sample(candidates, min(len(candidates), m.rng.randint(2, 6))):
        words[i] = misspell(words[i], m.rng)
    ask = m.rng.choice(
        ["Correct the spelling mistakes in the passage.", "Write the passage again with its typing errors corrected."]
    )
    return f"{ask}\n\nPassage:\n{' '.join(words)}\n\nCorrected passage:\n", p


def reorder(m):
    if m.rng.random() < 0.5:
        items = [s[:90] for s in sentences_of(m.passage(900))][:8]
    else:
        found = sorted(set(re.findall(r"\b[a-z]{4,12}\b", m.passage(900))))
        items = m.rng.sample(found, min(len(found), m.rng.randint(4, 7)))
    if len(items) < 2:
        items = m.rng.sample(WORDS, 6)
    if m.rng.random() < 0.6:
        ask, head, answer = "Write the list again in reverse order.", "Reversed list:", items[::-1]
    else:
        ask, head, answer = (
            "Write the list again with the last item moved to the top.",
            "New list:",
            items[-1:] + items[:-1],
        )
    return (
        f"{ask}\n\nList:\n" + "\n".join(f"- {i}" for i in items) + f"\n\n{head}\n",
        "\n".join(f"- {i}" for i in answer),
    )


def rename_variable(m):
    found = []
    while not found:
        code = m.rng.choice(m.functions)
        found = [w for w in re.findall(r"\b[a-z_][a-z_0-9]{1,14}\b", code) if w not in STOP]
    old = max(sorted(set(found)), key=found.count)
    new = m.rng.choice([w for w in WORDS if w not in found])
    ask = m.rng.choice(
        [f"Rename `{old}` to `{new}` in this code.", f"Rewrite the code with `{old}` renamed to `{new}`."]
    )
    return f"{ask}\n\nCode:\n{code}\n\nRenamed code:\n", re.sub(rf"\b{old}\b", new, code)


def which_sentence(m):
    for _ in range(30):
        p = m.passage()
        options = sentences_of(p)
        if len(options) >= 2:
            break
    else:
        return repeat(m)
    chosen = m.rng.choice(options)
    others = " ".join(s for s in options if s != chosen)
    words = (
        [w for w in re.findall(r"\b[a-z]{5,}\b", chosen) if w not in others] or re.findall(r"\w+", chosen) or ["that"]
    )
    return (f'Passage:\n{p}\n\nQuestion: Which sentence mentions "{m.rng.choice(words)}"? Quote it.\nAnswer:',
            f' The sentence is: "{chosen}"')


def speaker_lines(m):
    lines = m.exchange()
    who = m.rng.choice(["USER", "SYSTEM"])
    chosen = [line for line in lines if line.startswith(who)]
    if not chosen:
        return repeat(m)
    body = "\n".join(lines)
    return f"Conversation:\n{body}\n\nCopy every line that {who} says.\n\nLines:\n", "\n".join(chosen)


KINDS = ((repeat, 5), (quote_paragraph, 3), (rename_person, 3), (correct, 3), (reorder, 2), (rename_variable, 3),
         (which_sentence, 3), (speaker_lines, 1))


def copy_tasks(texts, split, count, seed):
    """`count` pairs (prompt, answer). The answer follows the prompt directly and ends the document."""
    rng = random.Random(seed)
    material = Material(texts, split, rng)
    makers = [k for k, weight in KINDS for _ in range(weight)]
    tasks = []
    while len(tasks) < count:
        prompt, answer = rng.choice(makers)(material)
        if answer:
            tasks.append((prompt, answer))
    return tasks
