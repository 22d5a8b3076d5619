"""What each family of heads is made of and how it is trained. Sizes are for a target of width 384 and 8 layers."""

import json

# Of all families. `depth`: drafts of a chain in training; `fade`: a position's weight in the loss over that of the one
# before it; `rows`: sequences of a step; `roots`: places of a sequence from which chains start, 0 for all of them.
COMMON = {"heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512, "theta": 10000.0, "rate": 4e-3, "decay": 0.02,
          "rows": 128, "roots": 0, "depth": 5, "fade": 0.8, "seconds": 130}

FAMILIES = {
    # Unrolled over its own output (training-time test, arXiv 2503.01840), with its weights 0.8^step.
    "eagle3": {"ffn": 256, "depth": 6, "draft_vocab": 1536, "roots": 128, "seconds": 780},
    # MiMo's module (arXiv 2505.07608) has one step; it is unrolled here since chains of it are drafted.
    "mtp": {"heads": 6, "ffn": 896, "depth": 5, "roots": 128, "seconds": 780},
    # An ordinary small model, `start`; the share of masks kept falls with their distance (COD, arXiv 2504.18583).
    "pard": {"start": "draft", "depth": 8, "roots": 256, "keep": 0.7, "least": 0.2, "rate": 3e-3, "seconds": 780},
    # Blocks at random anchors; weights exp(-(k - 1) / 4) as its paper has them for blocks of 8 (arXiv 2602.06036).
    "dflash": {"ffn": 256, "layers": 2, "block": 8, "taps": [2, 5, 7], "roots": 64, "fade": 0.78, "seconds": 780},
    # Regression of the next feature beside the law (arXiv 2401.15077), unrolled as HASS does it (2408.15766).
    "eagle": {"depth": 3, "regression": 0.5, "roots": 128},
    "medusa": {"depth": 4, "layers": 1, "roots": 64},
    "hydra": {"depth": 4, "layers": 1, "roots": 64},
    # The weight of the estimate of acceptance is `estimate`.
    "dspark": {"ffn": 384, "layers": 2, "block": 7, "taps": [2, 5, 7], "roots": 64, "fade": 0.78, "seconds": 210,
               "rank": 64, "estimate": 0.1},
    # That of drafters/template_head.
    "linear": {"depth": 4, "roots": 128, "seconds": 60},
    # An early exit's adapter (arXiv 2404.18911); each token has a true state, so that all positions of a chain are one.
    "kangaroo": {"exit": 2, "depth": 1, "chain": 6},
}


def settings_of(family, changes=()):
    """`changes`: "NAME=VALUE" in JSON's notation."""
    found = {**COMMON, **FAMILIES[family]}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in found:
            raise SystemExit(f"{family} has no setting '{name}'; it has {', '.join(sorted(found))}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    if family in ("dflash", "dspark"):
        found["depth"] = found["block"] - (family == "dflash")
    return found
