"""The MinIO server of the test-server kit."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from tests.servers.minio import Bucket, Minio


def test_an_object_is_created_once_only(minio: Bucket) -> None:
    store = minio.store()
    obstore.put(store, "a/segment", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/segment", b"second", mode="create")
    assert bytes(obstore.get(store, "a/segment").bytes()) == b"first"


def test_each_test_gets_an_empty_bucket_of_its_own(minio_server: Minio) -> None:
    first, second = minio_server.fresh_bucket().store(), minio_server.fresh_bucket().store()
    obstore.put(first, "x", b"1")
    assert obstore.list(second).collect() == []
