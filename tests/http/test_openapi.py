"""What services write by hand about their APIs belongs to operations that exist."""

import pytest

from millstream.http.app import make_app
from millstream.http.openapi import ApiDescription
from millstream.registry.api import app as registry
from millstream.registry.api.openapi import API as REGISTRY_API
from millstream.rest.api import app as rest
from millstream.rest.api.openapi import API as REST_API


@pytest.mark.parametrize(
    ("routers", "api"), [(registry.ROUTERS, REGISTRY_API), (rest.ROUTERS, REST_API)], ids=["registry", "rest"]
)
def test_tables_name_operations(routers: tuple, api: ApiDescription) -> None:
    paths = make_app("toy", routers, lambda request, error: None, api).openapi()["paths"]
    operations = [operation for methods in paths.values() for operation in methods.values()]
    names = {operation["summary"].lower().replace(" ", "_") for operation in operations}
    assert {*api.queries, *api.bodies} <= names
    assert api.optional_bodies <= api.bodies.keys()
    assert {tag for operation in operations for tag in operation["tags"]} == set(api.tags)
    changing = {
        name
        for methods in paths.values()
        for method, operation in methods.items()
        if method in ("put", "patch")
        for name in [operation["summary"].lower().replace(" ", "_")]
    }
    assert changing <= api.bodies.keys()
