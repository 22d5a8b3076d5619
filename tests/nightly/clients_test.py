"""`foretoken serve` with clients of other people, which PyPI has: LiteLLM, and the package openai that it brings along.
Exit code 77 (skipped) where PyPI cannot be reached."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["FORETOKEN_BUILD_DIR"]).resolve()
FOLDER = BUILD / "clients"
PYTHON = FOLDER / "bin" / "python"
CLIENTS = '''
import sys
import litellm, openai
url, template = sys.argv[1], "Once upon a time"
client = openai.OpenAI(base_url=url, api_key="none")
greedy = {"max_tokens": 12, "temperature": 0}
text = client.completions.create(model="target", prompt=template, **greedy).choices[0].text
assert text
pieces = client.completions.create(model="target", prompt=template, stream=True, **greedy)
assert "".join(piece.choices[0].text for piece in pieces) == text
messages = [{"role": "user", "content": template}]
said = client.chat.completions.create(model="target", messages=messages, **greedy).choices[0].message.content
lite = {"model": "openai/target", "api_base": url, "api_key": "none", "messages": messages, **greedy}
assert litellm.completion(**lite).choices[0].message.content == said
assert "".join(piece.choices[0].delta.content or "" for piece in litellm.completion(stream=True, **lite)) == said
whole = litellm.text_completion(model="text-completion-openai/target", api_base=url, api_key="none", prompt=template,
                                **greedy)
assert whole.choices[0].text == text, whole
try:
    tool = {"type": "function", "function": {"name": "f"}}
    client.chat.completions.create(model="target", messages=messages, tools=[tool])
    raise SystemExit("tools were taken")
except openai.BadRequestError as e:
    assert "tools" in str(e)
try:
    litellm.completion(**{**lite, "model": "openai/other"})
    raise SystemExit("another model was served")
except litellm.NotFoundError as e:
    assert "other" in str(e)
print("all clients got", repr(text))
'''


def main():
    venv.create(FOLDER, clear=True, with_pip=True)
    installed = subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "litellm", "openai"], capture_output=True,
                               text=True)
    if installed.returncode:
        print("skipped: the clients were not tested, since PyPI gives none:", installed.stderr[-500:])
        sys.exit(77)
    server = subprocess.Popen([BUILD / "foretoken", "serve", "--model", ROOT / "experiments" / "models" / "target",
                               "--port", "0", "--set", "/engine/device=cpu", "--access-log", "none",
                               "--chat-template", ROOT / "experiments" / "serve" / "plain.jinja"],
                              stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S*/v1", server.stderr.readline())[0]
        sys.exit(subprocess.run([PYTHON, "-c", CLIENTS, url], timeout=300).returncode)
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    main()
