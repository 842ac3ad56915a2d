"""The tour of the documentation is run as it stands."""

import re
import subprocess
from pathlib import Path

from tests.docs.pages import SHELL_PATH
from tests.server.conftest import Running

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


def test_the_tour_works_as_written(tmp_path: Path, served: Running) -> None:
    (tour,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    pasted = tour.replace("123", "tour").replace("http://127.0.0.1:8000", served.url).replace("ab_…", served.secret)
    script = f"shopt -s expand_aliases; set -euo pipefail\n{pasted}"
    environment = {"PATH": SHELL_PATH}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"total_row_count":3' in ran.stdout
    assert '"was_local":true' in ran.stdout
