"""Logits in memory that the drafter uses again: what is verified is what was drawn from."""

import numpy as np
import pytest

import foretoken
from conftest import DRAFT

PROMPTS = ["Once upon a time", "The sun was"]


class Lent:
    """what has DLPack and is no array of NumPy, as a tensor of PyTorch"""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def one_view(buffer, rows, views):
    return buffer[:rows]


def viewed_before(buffer, rows, views):
    views.append(buffer[:])
    return buffer


@pytest.mark.parametrize("lend", [one_view, viewed_before, lambda buffer, rows, views: Lent(buffer[:rows])])
def test_logits_in_a_buffer_that_is_used_again_are_what_was_drawn_from(lend):
    def drafts(reused):
        class Buffered:
            def __init__(self, facts):
                self.vocab = facts["vocab"]

            def draft(self, batch):
                rows = len(batch)
                buffer, views = np.zeros((rows, self.vocab), np.float32), []
                for level in range(batch.chain.max()):
                    if reused:
                        given = lend(buffer, rows, views)
                        to = (views or [buffer])[-1]
                    else:
                        given = to = np.zeros((rows, self.vocab), np.float32)
                    to[:] = 0
                    for row, tokens in zip(to, batch.all_tokens()):
                        row[tokens] = 7 - 3 * level
                    del to, row
                    batch.draw(given)

        return Buffered

    found = []
    for reused in (False, True):
        foretoken.register_drafter("py_buffered", drafts(reused), proposes=["chain"])
        with foretoken.Engine(target=DRAFT, drafter="py_buffered", length=3) as engine:
            found.append([(o.tokens, o.accepted, o.failure) for o in
                          engine.generate(PROMPTS, max_new_tokens=48, temperature=1.0)])
    assert found[0] == found[1] and sum(accepted for _, accepted, _ in found[0]) > 0
