"""The package `openai` as a client of `foretoken serve`."""

import os
import re
import subprocess
from pathlib import Path

import openai
import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ["FORETOKEN_BUILD_DIR"]) / "foretoken"
MODELS = ROOT / "experiments" / "models"


@pytest.fixture(scope="module")
def client():
    server = subprocess.Popen(
        [PROGRAM, "serve", "--model", MODELS / "target", "--draft", MODELS / "draft", "--port", "0", "--set",
         "/engine/device=cpu", "--set", "/engine/threads=1", "--access-log", "none", "--chat-template",
         ROOT / "experiments" / "serve" / "plain.jinja"], stderr=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+/v1", server.stderr.readline())
    assert url, server.stderr.read()
    yield openai.OpenAI(base_url=url[0], api_key="none", max_retries=0)
    server.terminate()
    assert server.wait(30) == 0


def test_completions_and_streams_have_one_text(client):
    ask = {"model": "target", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
    whole = client.completions.create(**ask)
    pieces = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert whole.usage.completion_tokens == pieces[-1].usage.completion_tokens == 16
    assert whole.choices[0].text == "".join(c.text for piece in pieces for c in piece.choices)
    assert whole.choices[0].finish_reason == "length"


def test_conversations(client):
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "When does the train leave?"}]
    ask = {"model": "target", "messages": messages, "max_tokens": 12, "temperature": 0, "stop": ["\nUSER"]}
    whole = client.chat.completions.create(**ask, logprobs=True)
    streamed = "".join(c.delta.content or "" for piece in client.chat.completions.create(**ask, stream=True)
                       for c in piece.choices)
    assert whole.choices[0].message.content == streamed
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    # What was answered can be sent back as it came.
    again = messages + [whole.choices[0].message, {"role": "user", "content": "And later?"}]
    assert client.chat.completions.create(**{**ask, "messages": again}).choices[0].message.role == "assistant"


def test_extensions_and_errors(client):
    ask = {"model": "target", "prompt": "Once", "max_tokens": 8, "temperature": 0}
    plain = client.completions.create(**ask, extra_body={"draft_length": 0, "report_speculation": True})
    assert plain.usage.model_extra["speculation"]["drafted_tokens"] == 0
    assert [m.id for m in client.models.list()] == ["target"]
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**ask, extra_body={"tempratur": 1})
    assert refused.value.param == "tempratur" and "did you mean 'temperature'" in str(refused.value)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(**{**ask, "model": "other"})
