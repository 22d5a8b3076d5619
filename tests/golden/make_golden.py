#!/usr/bin/env python3
"""Makes the golden values under tests/data with Transformers. Run by hand; needs torch, transformers, tokenizers,
xxhash.

  make_golden.py                 the tiny tokenizers and models, and their values
  make_golden.py NAME ...        these tiny models alone
  make_golden.py NAME=DIR ...    values of these model directories too; the tiny ones are left alone

For the demo models: make_golden.py NAME=experiments/models/NAME for NAME in target, draft, draft-large
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chat_golden
import models_golden
import tokenizers_golden

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def main() -> None:
    named = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    tiny = tuple(argument for argument in sys.argv[1:] if "=" not in argument)
    if not named and not tiny:
        for name, directory in tokenizers_golden.write_tiny(DATA / "tokenizers").items():
            tokenizers_golden.write_golden(name, directory, DATA / "tokenizers")
        chat_golden.write_golden(DATA / "tokenizers")
    if not named:
        for name, directory in models_golden.write_tiny(DATA / "models", tiny).items():
            models_golden.write_golden(
                name, directory, DATA / "golden", models_golden.prompts_of(name), last_only=False
            )
    if not named and (not tiny or "phi3" in tiny):
        models_golden.write_long(DATA / "models", DATA / "golden")
    for name, directory in named.items():
        directory = pathlib.Path(directory)
        tokenizers_golden.write_golden(name, directory, DATA / "tokenizers")
        if (directory / "config.json").exists():
            models_golden.write_golden(
                name, directory, DATA / "golden", models_golden.text_prompts(directory), last_only=True
            )


if __name__ == "__main__":
    main()
