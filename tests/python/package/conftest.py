"""What the tests share: the demo models, and one engine that is made once."""

import pytest

import foretoken

TARGET, DRAFT = "experiments/models/target", "experiments/models/draft"


@pytest.fixture(scope="session")
def engine():
    with foretoken.Engine(target=TARGET, draft=DRAFT, length=4) as made:
        yield made
