"""Trains one head: steps, a log, checkpoints from which a run goes on, measurements."""

import time

import torch

from ..optim import Optimiser
from . import files
from .batches import Rows, Target, precision, random_roots
from .direct import Hydra, Kangaroo, Linear, Medusa
from .loss import chain_loss, position_loss
from .measure import acceptance, line
from .parallel import Dflash, Dspark, Pard
from .rollouts import frequent, outputs, store
from .unrolled import Eagle, Eagle3, Mtp

PLAIN = {"mtp": Mtp, "eagle": Eagle, "medusa": Medusa, "hydra": Hydra, "kangaroo": Kangaroo,
         "linear": Linear}
MASKED = {"pard": Pard, "dflash": Dflash, "dspark": Dspark}


def unused_token(tokenizer):
    """A token that no text has, to stand for what is not known: that of a byte which UTF-8 never uses."""
    for word in ("ÿ", "<0xFF>"):  # of byte-level vocabularies, of those with byte fallback
        if (token := tokenizer.token_to_id(word)) is not None:
            return token
    raise SystemExit("the tokenizer has no token for the byte 0xFF to serve as mask; give one as --mask")


def build(family, s, target, columns, mask):
    if family == "eagle3":
        return Eagle3(s, target, frequent(columns, s["draft_vocab"]).to(target.head.device))
    return MASKED[family](s, target, mask) if family in MASKED else PLAIN[family](s, target)


class Run:
    """The state of a training run, and its checkpoint under --work."""

    def __init__(self, family, s, args, log, tokenizer):
        self.family, self.s, self.args, self.log = family, s, args, log
        stored = outputs(args, log)
        self.about, self.target = stored["about"], Target(args.target, args.device)
        self.rows = Rows(stored["train"], self.target, args.device)
        self.held = Rows(stored["held-out"], self.target, args.device)
        mask = args.mask if args.mask is not None else unused_token(tokenizer) if family in MASKED else None
        torch.manual_seed(args.seed)
        self.head = build(family, s, self.target, stored["train"], mask).to(args.device)
        self.optimiser = Optimiser(self.head, s["rate"], s["rate"], args.steps or 1000, flat=0.3, decay=s["decay"],
                                   inside=self.is_inner)
        self.step, self.elapsed, self.path = 0, 0.0, args.work / f"{family}.pt"
        self.loss_of, self.unsure = position_loss, not args.eager  # whether it compiles here
        if self.unsure:
            self.loss_of = torch.compile(position_loss)
            self.target.compile_for((min(s["rows"], len(self.rows)), self.rows.tokens.shape[1]))

    def is_inner(self, name, p):
        """Matrices that Muon trains: all but those with a row for each token."""
        words = self.head.words.ids
        return p.ndim == 2 and p.shape[0] > 1 and p.shape[0] not in (self.target.shape.vocab,
                                                                     -1 if words is None else len(words))

    def keep(self):
        store({"settings": self.s, "outputs": self.about["settings"], "head": self.head.state_dict(),
               "optimiser": self.optimiser.state(), "step": self.step, "elapsed": self.elapsed}, self.path)

    def resume(self):
        if not self.path.exists():
            return self.log(f"{self.family}: no checkpoint at {self.path}; begins anew")
        stored = torch.load(self.path, weights_only=True, map_location=self.args.device)
        lasting = {**self.s, "seconds": stored["settings"]["seconds"]}  # how long is a matter of each call
        if stored["settings"] != lasting or stored["outputs"] != self.about["settings"]:
            raise SystemExit(f"{self.path} is of other settings, outputs or another target; leave out --resume")
        self.head.load_state_dict(stored["head"])
        self.optimiser.load_state(stored["optimiser"])
        self.step, self.elapsed = stored["step"], stored["elapsed"]
        self.log(f"{self.family}: goes on at step {self.step}, {self.elapsed:.0f} s")

    def progress(self):
        return self.step / self.args.steps if self.args.steps else self.elapsed / self.s["seconds"]

    def one_step(self):
        """(loss, seen of chain_loss). Where the compiler fails in the first step, all goes on uncompiled."""
        try:
            found = self.pass_through()
        except Exception as error:
            if not self.unsure:
                raise
            self.log(f"runs uncompiled: {type(error).__name__}: {str(error)[:300]}")
            self.loss_of, self.target.compiled = position_loss, None
            self.head.zero_grad()
            found = self.pass_through()
        self.unsure = False
        self.optimiser.progress = self.progress()
        self.optimiser.step()
        return found

    def pass_through(self):
        batch = self.rows.shuffled(self.step, self.s["rows"])
        generator = torch.Generator(self.args.device).manual_seed(self.step)
        with precision(self.args.device):
            roots = random_roots(len(batch.tokens), self.s["roots"], self.rows.new - 1, generator, self.args.device)
            drafts, further = self.head(batch.read(self.head.taps), roots, self.s["depth"])
            loss, seen = chain_loss(batch, drafts, self.head.words, self.s["fade"], self.s.get("estimate", 0.0),
                                    self.loss_of)
            loss = loss + further
        loss.backward()
        return loss.detach(), seen

    def measure(self, most=None):
        return acceptance(self.head, self.held, self.s.get("chain", self.s["depth"]), most=most)

    def report(self, loss, seen):
        found = " ".join(f"{k}: {float(a):.3f}/{float(g):.3f}" for k, (a, g) in seen.items())
        self.log(f"{self.family} step {self.step} {self.progress():.0%} {self.elapsed:.0f} s loss {float(loss):.4f} "
                 f"accepted/agreed {found}")

    def train(self):
        """Until the steps or seconds are spent; False where it stopped at --stop-at before that."""
        args, before, kept = self.args, self.elapsed, time.time()
        start = time.time()
        self.head.train()
        while self.progress() < 1:
            if args.stop_at is not None and self.step >= args.stop_at:
                self.keep()
                return False
            loss, seen = self.one_step()
            self.step += 1
            if self.step % args.log_every == 0:  # reading a number waits for the device: only here
                self.report(loss, seen)
            if self.step % args.measure_every == 0:
                self.log(f"{self.family} step {self.step} held-out {line(self.measure(most=192))}")
            self.elapsed = before + time.time() - start
            if time.time() - kept > args.keep_every:
                self.keep()
                kept = time.time()
        self.keep()
        return True


def train(family, s, args, log, tokenizer):
    run = Run(family, s, args, log, tokenizer)
    count = sum(p.numel() for p in run.head.parameters())
    log(f"{family}: {count:,} parameters, {2 * count / 1e6:.2f} MB, {len(run.rows)} outputs, settings {s}")
    if args.resume:
        run.resume()
    if not run.train():
        return log(f"{family}: stopped at step {run.step}; --resume goes on")
    files.save(family, run.head, args.out, run.target, tokenizer)
    files.reload(family, run.head, args.out)
    measured = run.measure()
    log(f"{family} as saved, held-out {line(measured)}")
    about = {"steps": run.step, "seconds": run.elapsed, "machine": files.machine(args.device), "settings": s}
    files.card(family, run.head, args.out, run.target, run.about, about, measured)
