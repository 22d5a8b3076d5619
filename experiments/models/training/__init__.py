"""Training of the demo models: data, model, optimisers, the five stages and the measurements."""
