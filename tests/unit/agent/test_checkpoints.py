"""Where checkpoints are, and how engines are told to reach them."""

from __future__ import annotations

from pathlib import Path

from headgate.engine import v1 as engine
from headgate_agent.fragments.checkpoints import checkpoint_uri, s3_access


def test_checkpoints_are_in_the_object_store_unless_another_place_is_named(tmp_path: Path) -> None:
    assert checkpoint_uri("", "s3://bucket/prefix/", tmp_path) == "s3a://bucket/prefix/checkpoints"
    assert checkpoint_uri("", str(tmp_path / "objects"), tmp_path) == str(tmp_path / "objects" / "checkpoints")
    assert checkpoint_uri("s3a://other/place", "s3://bucket", tmp_path) == "s3a://other/place"


def test_engines_are_told_how_to_reach_s3_and_never_the_keys() -> None:
    options = {
        "endpoint": "http://store:9000",
        "region": "eu-1",
        "access_key_id": "me",
        "secret_access_key": "hush",
    }
    told = s3_access("s3a://bucket/checkpoints", options, {"AWS_SECRET_ACCESS_KEY": "hush"})
    assert told == engine.S3Access(endpoint="http://store:9000", region="eu-1", path_style=True)
    assert "hush" not in str(told)


def test_what_the_options_do_not_say_comes_from_the_environment() -> None:
    around = {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_DEFAULT_REGION": "us-1"}
    assert s3_access("s3a://b/c", {"aws_region": "eu-1"}, around) == engine.S3Access(
        endpoint="http://store:9000", region="eu-1", path_style=True
    )
    virtual = s3_access("s3a://b/c", {"virtual_hosted_style_request": "true"}, around)
    assert virtual is not None and not virtual.path_style


def test_amazons_own_store_needs_nothing_said_and_other_places_no_s3() -> None:
    assert s3_access("s3a://b/c", {}, {}) == engine.S3Access()
    assert s3_access("/mnt/checkpoints", {"endpoint": "http://store"}, {}) is None
