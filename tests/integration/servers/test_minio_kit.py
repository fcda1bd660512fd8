"""The MinIO server of the test-server kit."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from tests.servers.minio import Bucket, Minio


def store_of(bucket: Bucket) -> S3Store:
    return S3Store(
        bucket.name,
        endpoint=bucket.endpoint,
        access_key_id=bucket.access_key,
        secret_access_key=bucket.secret_key,
        region=bucket.region,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


def test_an_object_is_created_once_only(minio: Bucket) -> None:
    store = store_of(minio)
    obstore.put(store, "a/segment", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/segment", b"second", mode="create")
    assert bytes(obstore.get(store, "a/segment").bytes()) == b"first"


def test_each_test_gets_an_empty_bucket_of_its_own(minio_server: Minio) -> None:
    first, second = store_of(minio_server.fresh_bucket()), store_of(minio_server.fresh_bucket())
    obstore.put(first, "x", b"1")
    assert obstore.list(second).collect() == []
