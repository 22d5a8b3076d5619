"""tests/experiments/hostile_server_test.py with 100,000 requests."""

import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parents[1] / "experiments" / "hostile_server_test.py"
sys.exit(subprocess.run([sys.executable, TEST], env={**os.environ, "FORETOKEN_HOSTILE": "100000"}).returncode)
