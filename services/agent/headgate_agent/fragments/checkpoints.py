"""Where engines keep the checkpoints of compute fragments, and their removal.

All agents whose fragments may move to one another must name the same place, and every engine must reach it. By default
it is the folder `checkpoints` of the object store, which agents of a group share.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlparse

from headgate.engine import v1 as engine
from headgate_agent.engines import Engines
from headgate_agent.errors import OBJECT_STORE_UNAVAILABLE
from headgate_agent.log.assembly import local_folder
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError

FOLDER = "checkpoints"
# What Spark calls the stores that have another name here.
_SPARK_SCHEMES = {"s3": "s3a", "az": "abfss"}
_TRUE = ("true", "1", "yes")


def checkpoint_uri(chosen: str, object_store: str, data: Path) -> str:
    """The place that is configured, or the one in the object store."""
    if chosen:
        return str(Path(chosen).expanduser().absolute()) if not urlparse(chosen).scheme else chosen
    url = urlparse(object_store)
    if url.scheme in ("", "file", "memory"):
        folder = data if url.scheme == "memory" else local_folder(object_store, data)
        return str(folder.absolute() / FOLDER)
    scheme = _SPARK_SCHEMES.get(url.scheme, url.scheme)
    return f"{url._replace(scheme=scheme).geturl().rstrip('/')}/{FOLDER}"


def s3_access(uri: str, options: Mapping[str, str], environment: Mapping[str, str]) -> engine.S3Access | None:
    """How engines reach a checkpoint in S3: as the agent reaches its objects there, but for the keys, of which engines
    have their own. None where it is elsewhere."""
    if urlparse(uri).scheme != "s3a":
        return None

    def found(*names: str) -> str:
        told = (options.get(name) or options.get(f"aws_{name}") for name in names)
        around = (environment.get(f"AWS_{name.upper()}") for name in names)
        return next((value for value in (*told, *around) if value), "")

    endpoint = found("endpoint", "endpoint_url")
    virtual = found("virtual_hosted_style_request").lower() in _TRUE
    return engine.S3Access(
        endpoint=endpoint,
        region=found("region", "default_region"),
        path_style=bool(endpoint) and not virtual,
    )


class Checkpoints:
    """Where they are: `s3` says how engines reach them, where that is S3."""

    def __init__(self, uri: str, engines: Engines, work: Work, s3: engine.S3Access | None = None) -> None:
        self.uri = uri
        self.s3 = s3
        self._engines = engines
        self._work = work

    async def remove(self, fragment_uid: str) -> None:
        """Removes what the runs of a fragment have kept. A folder is removed from here; only engines know how to reach
        anything else."""
        url = urlparse(self.uri)
        if url.scheme not in ("", "file"):
            request = engine.DeleteCheckpointRequest(
                fragment_uid=fragment_uid, checkpoint=self.uri, checkpoint_s3=self.s3
            )
            await self._engines.delete_checkpoint(request)
            return
        folder = Path(unquote(url.path)) / fragment_uid
        await self._work.run(partial(_remove, folder))


def _remove(folder: Path) -> None:
    for path in (folder, folder.with_name(f"{folder.name}.control")):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HeadgateError(OBJECT_STORE_UNAVAILABLE, f"{path} cannot be removed: {error.strerror}") from error
