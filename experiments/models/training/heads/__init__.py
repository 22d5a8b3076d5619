"""Training of draft heads on a frozen target's own outputs; see README.md of experiments/models."""
