"""The data folder: its identity, and the catalog that it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_agent.data import CatalogMark, own, volume_id
from headgate_agent.errors import CATALOG_MISMATCH, DATA_IN_USE
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds


def test_a_folder_has_one_identity_for_good(tmp_path: Path) -> None:
    assert volume_id(tmp_path, RandomIds()) == volume_id(tmp_path, RandomIds())


def test_one_process_at_a_time_has_a_folder(tmp_path: Path) -> None:
    with own(tmp_path), pytest.raises(HeadgateError) as refused, own(tmp_path):
        pass
    assert refused.value.reason is DATA_IN_USE
    with own(tmp_path):
        pass


def test_a_folder_without_a_mark_is_of_the_first_catalog_that_it_is_given_to(tmp_path: Path) -> None:
    assert CatalogMark(tmp_path).uid == ""
    CatalogMark(tmp_path).keep("catalog-1")
    assert CatalogMark(tmp_path).uid == "catalog-1"
    assert not list(tmp_path.glob("*.new"))


def test_a_folder_without_a_mark_is_of_the_catalog_of_its_object_store(tmp_path: Path) -> None:
    assert CatalogMark(tmp_path, "catalog-1").uid == "catalog-1"
    assert CatalogMark(tmp_path).uid == "", "nothing is kept before the catalog has answered"


def test_a_folder_and_a_store_of_different_catalogs_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    CatalogMark(tmp_path).keep("catalog-1")
    with pytest.raises(HeadgateError) as refused:
        CatalogMark(tmp_path, "catalog-2")
    assert refused.value.reason is CATALOG_MISMATCH
    assert "--adopt-catalog" in refused.value.message
    assert CatalogMark(tmp_path, "catalog-1").uid == "catalog-1"


def test_what_is_adopted_is_of_the_catalog_that_is_joined_next(tmp_path: Path) -> None:
    CatalogMark(tmp_path).keep("catalog-1")
    mark = CatalogMark(tmp_path, "catalog-2", adopt=True)
    assert mark.uid == ""
    assert CatalogMark(tmp_path).uid == "catalog-1", "not before it has joined"
    mark.keep("catalog-3")
    assert (mark.uid, CatalogMark(tmp_path).uid) == ("catalog-3", "catalog-3")
