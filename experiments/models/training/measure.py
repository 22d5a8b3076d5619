"""The numbers of the model card, measured in fp32 arithmetic with the bf16 weights as saved."""

import json

import torch
import torch.nn.functional as F

from .data import DOMAINS, EOS_ID
from .model import generate
from .stages import repeated

FAMILIES = ("story", "dialogue", "code", "technical", "math", "copy")
LOOP = 16


@torch.no_grad()
def held_out_loss(models, corpus, log):
    """Mean next-token loss in nats over held-out windows of 1024 tokens."""
    for name, model in models.items():
        parts = []
        for domain in (*DOMAINS, "copy"):
            windows = corpus.ordered_windows(domain, 192, 1025)
            losses = [
                F.cross_entropy(F.linear(model(w[:, :-1], torch.float32), model.head).flatten(0, 1), w[:, 1:].flatten())
                for w in windows.split(32)
            ]
            parts.append(f"{domain} {torch.stack(losses).mean().item():.3f}")
        log(f"held-out loss {name}: " + " ".join(parts))


@torch.no_grad()
def laws(model, rows):
    return torch.cat([F.linear(model(r, torch.float32), model.head).softmax(-1) for r in rows.split(64)])


def acceptance_on_texts(models, corpus, log):
    """The same two rates along the held-out texts themselves, not along the target's own text."""
    for domain in (*DOMAINS, "copy"):
        windows, parts = corpus.ordered_windows(domain, 64, 512), []
        p = laws(models["target"], windows)
        for name in models.keys() - {"target"}:
            q = laws(models[name], windows)
            agree, share = (p.argmax(-1) == q.argmax(-1)).float().mean().item(), torch.minimum(p, q).sum(
                -1
            ).mean().item()
            parts.append(f"{name} agree {agree:.3f} sum-min {share:.3f}")
        log(f"along held-out text {domain}: " + " ".join(sorted(parts)))


def lookup(rows, lengths, total, n=2):
    """Share of the emitted tokens that follow the last earlier occurrence of the n tokens before them."""
    hits = seen = 0
    for row, start, end in zip(rows.tolist(), lengths.tolist(), total.tolist()):
        last = {}
        for t in range(n, end):
            key = tuple(row[t - n:t])
            if t >= start:
                hits += last.get(key) == row[t]
                seen += 1
            last[key] = row[t]
    return hits / max(seen, 1)


def acceptance(models, prompts, lengths, count, temperature, generator):
    """Continues the prompts with the target; returns its text and each draft's mean chance of acceptance on it."""
    rows, total = generate(models["target"], prompts, lengths, count, temperature, generator)
    columns = torch.arange(rows.shape[1] - 1, device=rows.device) + 1
    emitted = (columns >= lengths[:, None]) & (columns < total[:, None])
    p, result = laws(models["target"], rows[:, :-1])[emitted], {}
    for name, model in models.items():
        if name == "target":
            continue
        q = laws(model, rows[:, :-1])[emitted]
        each = (p.argmax(-1) == q.argmax(-1)).float() if temperature == 0 else torch.minimum(p, q).sum(-1)
        result[name] = each.mean().item()
    return rows, total, result


def loop_rate(rows, lengths, total, count):
    """Share of the first `count` emitted tokens that lie in a 16-gram occurring at least twice among them."""
    end = torch.minimum(total, lengths + count)
    _, marked = repeated(rows, lengths, end, LOOP)
    return (marked.sum() / (end - lengths).sum()).item()


def describe(models, groups, log, title, repeats=1):
    """One line a group: loops, acceptance at T=0 and T=1 of both drafts, prompt lookup."""
    device = models["target"].head.device
    generator = torch.Generator(device).manual_seed(7)
    everywhere = []
    for name, (prompts, lengths) in groups.items():
        rows, total, greedy = acceptance(models, prompts, lengths, 128, 0.0, None)
        text = f"loops 64 {loop_rate(rows, lengths, total, 64):.3f} 128 {loop_rate(rows, lengths, total, 128):.3f}"
        if name != "copy":
            everywhere.append((rows, lengths, total))
        text += f" | emitted {(total - lengths).float().mean().item():.0f}"
        text += (
            " | T=0 "
            + " ".join(f"{n} {v:.3f}" for n, v in greedy.items())
            + f" lookup {lookup(rows, lengths, total):.3f}"
        )
        several = [acceptance(models, prompts, lengths, 128, 1.0, generator) for _ in range(repeats)]
        text += " | T=1 " + " ".join(f"{n} {sum(s[2][n] for s in several) / repeats:.3f}" for n in greedy)
        log(f"{title} {name}: {text} lookup {lookup(*(several[0][0], lengths, several[0][1])):.3f}")
    for count in (64, 128):
        marked = sum(
            loop_rate(r, l, t, count) * (torch.minimum(t, l + count) - l).sum().item() for r, l, t in everywhere
        )
        seen = sum((torch.minimum(t, l + count) - l).sum().item() for _, l, t in everywhere)
        log(
            f"{title} outside copy: repeated {LOOP}-grams hold {marked / seen:.4f} of {seen} tokens ({count} a prompt, greedy)"
        )


def pad(lists, device):
    width = max(len(ids) for ids in lists)
    rows = torch.full((len(lists), width), EOS_ID, dtype=torch.int64)
    for i, ids in enumerate(lists):
        rows[i, :len(ids)] = torch.tensor(ids)
    return rows.to(device), torch.tensor([len(ids) for ids in lists], device=device)


def own_prompts(path, tokenizer, device):
    entries = [json.loads(line) for line in path.read_text().splitlines() if line]
    ids = {
        f: [tokenizer.encode(e["prompt"], add_special_tokens=False).ids for e in entries if e["category"] == f]
        for f in FAMILIES
    }
    return entries, {f: pad(lists, device) for f, lists in ids.items() if lists}


def held_out_prompts(corpus, device, per_domain=192):
    generator = torch.Generator(device).manual_seed(8)
    groups = {}
    for domain in (*DOMAINS, "copy"):
        prompts, lengths, _ = corpus.draw_prompts(
            {domain: per_domain}, 320 if domain in corpus.prompts else 128, generator, 64
        )
        groups[domain] = (prompts, lengths)
    return groups


def show_samples(model, entries, groups, tokenizer, log):
    for family, (prompts, lengths) in groups.items():
        rows, total = generate(model, prompts[:2], lengths[:2], 96)
        for row, start, end in zip(rows.tolist(), lengths.tolist(), total.tolist()):
            log(f"sample {family}: ...{tokenizer.decode(row[max(0, start - 12):start])!r} -> "
                f"{tokenizer.decode(row[start:end], skip_special_tokens=False)!r}")


@torch.no_grad()
def compare_with_transformers(models, folders, groups, log):
    """Loads the directories in Transformers (fp32) and compares logits and greedy text, one prompt a family."""
    import transformers
    transformers.utils.logging.disable_progress_bar()
    log(f"transformers {transformers.__version__}, torch {torch.__version__}")
    alike = True
    for name, model in models.items():
        other = (
            transformers.AutoModelForCausalLM.from_pretrained(folders[name], dtype=torch.float32)
            .to(model.head.device)
            .eval()
        )
        words = transformers.AutoTokenizer.from_pretrained(folders[name])
        worst, equal, count = 0.0, 0, 0
        for prompts, lengths in groups.values():
            for i in range(min(2, len(prompts))):
                ids = prompts[i:i + 1, :int(lengths[i])]
                ours = F.linear(model(ids, torch.float32), model.head)
                worst = max(worst, (ours - other(ids).logits).abs().max().item())
                rows, total = generate(model, ids, lengths[i:i + 1], 64)
                theirs = other.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False)
                equal += rows[0, :int(total[0])].tolist() == theirs[0].tolist()
                count += 1
        alike &= equal == count
        log(
            f"transformers {name}: {type(other).__name__}, {type(words).__name__} of {len(words)} tokens, "
            f"eos {other.generation_config.eos_token_id}, largest logit difference {worst:.2e}, greedy text equal {equal}/{count}"
        )
    return alike
