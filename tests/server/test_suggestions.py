"""Unknown names in requests: the answer names the one that was probably meant."""

from typing import Any

import pytest

from tests.server.conftest import Project, ok, refused


@pytest.mark.parametrize(
    ("path", "params", "code", "meant"),
    [
        ("{table}/preview", {"columns": "amonut"}, "schema_mismatch", "amount"),
        ("{table}s/preview", {}, "table_not_found", "in_c_sales.orders"),
        ("{table}s", {}, "table_not_found", "in_c_sales.orders"),
        ("{project}/tags/relaese-1", {}, "tag_not_found", "release-1"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(
    project: Project, path: str, params: dict[str, Any], code: str, meant: str
) -> None:
    ok(project.client.post(f"{project.path}/tags", json={"name": "release-1"}))
    ok(project.client.post(f"{project.table()}/columns", json={"columns": [{"name": "amount", "type": "int64"}]}))
    answer = project.client.get(path.format(table=project.table(), project=project.path), params=params)
    assert f"did you mean '{meant}'?" in str(refused(answer, answer.status_code, code))
