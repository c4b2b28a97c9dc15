"""Where files go: a folder of this machine, S3, or what pyarrow's file systems reach (HDFS).

An `Output` collects bytes in memory and moves them on (`drain`) when they are many. Nobody sees the file
before `commit`, which gives it its name in one step and may be done again: the same bytes take the place of
the same bytes. What fails and may pass is a RetriableError, and nothing that was written is lost by it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.connect.config.config_def import ConfigError
from millstream.connect.errors import ConnectError, RetriableError

SPILL_BYTES = 4 << 20
COPY_BYTES = 8 << 20


class Output(ABC):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> int:
        self._held.append(bytes(data))
        self._held_bytes += len(data)
        return len(data)

    def drain(self) -> None:
        """Move on what is held, if it is much."""
        if self._held_bytes >= self._limit:
            self._move(b"".join(self._held))
            self._held, self._held_bytes = [], 0

    def commit(self, name: str) -> None:
        """It is complete, and has this name below the store's root."""
        self._finish(b"".join(self._held), name)

    @abstractmethod
    def _move(self, data: bytes) -> None:
        """All of it, or RetriableError and none of it."""

    @abstractmethod
    def _finish(self, rest: bytes, name: str) -> None: ...

    def abort(self) -> None:  # noqa: B027 - what is in memory needs nothing
        """It will not be committed."""


class Store(ABC):
    @abstractmethod
    def output(self, name: str) -> Output:
        """For a file that may be called like this; it is known for sure when it is committed."""

    def clean(self) -> None:  # noqa: B027 - not every store keeps something
        """Remove what a task of this name left unfinished."""

    def close(self) -> None:  # noqa: B027
        """The task ends."""


# --- a folder -----------------------------------------------------------------------------------------------


class LocalStore(Store):
    """`unfinished` is the folder for files without a name yet, below the root: this task's own."""

    def __init__(self, root: str, unfinished: str) -> None:
        self.root = Path(root)
        self.unfinished = self.root / unfinished

    def output(self, name: str) -> Output:
        return _LocalOutput(self)

    def clean(self) -> None:
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def close(self) -> None:
        self.clean()
        with contextlib.suppress(OSError):  # unless another task has files there
            self.unfinished.parent.rmdir()


def _failed(error: OSError, path: Path) -> ConnectError:
    """A full disk may have room later; a folder that we may not write to stays like that."""
    text = f"cannot write {path}: {error.strerror}"
    return ConnectError(text) if isinstance(error, PermissionError) else RetriableError(text)


class _LocalOutput(Output):
    def __init__(self, store: LocalStore) -> None:
        super().__init__(SPILL_BYTES)
        self._root = store.root
        self._unfinished = store.unfinished / uuid.uuid4().hex
        self._length = 0
        self._named = False

    def _move(self, data: bytes) -> None:
        try:
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            # Opened for each move: a sink may have more files at a time than a process may keep open.
            with open(self._unfinished, "r+b" if self._length else "wb", buffering=0) as file:
                file.truncate(self._length)  # what a full disk took the last time
                file.seek(self._length)
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
        except OSError as error:
            raise _failed(error, self._unfinished) from None
        self._length += len(data)

    def _finish(self, rest: bytes, name: str) -> None:
        if self._named:
            return
        target = self._root / name
        if ".." in target.relative_to(self._root).parts:
            raise ConnectError(f"{name} is outside of {self._root}")
        before = self._length
        self._move(rest)
        try:
            with open(self._unfinished, "rb") as file:
                os.fsync(file.fileno())
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._unfinished, target)
            _sync_folder(target.parent)
        except OSError as error:
            self._length = before  # the rest is written again
            raise _failed(error, target) from None
        self._named = True

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._unfinished.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- S3 -----------------------------------------------------------------------------------------------------


class S3Store(Store):
    """By boto3 (`pip install "millstream[s3]"`). Large files are uploaded in parts while they grow; S3 shows
    them when the last step is done."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            import boto3
            import botocore.config
        except ImportError:
            raise ConfigError('the S3 sink needs boto3: pip install "millstream[s3]"') from None
        self.bucket: str = settings["s3.bucket.name"]
        self.part_size: int = settings["s3.part.size"]
        self.put_arguments = _put_arguments(settings)
        secret = settings["aws.secret.access.key"]
        self.client: Any = boto3.client(
            "s3",
            region_name=settings["s3.region"],
            endpoint_url=settings["store.url"] or None,
            aws_access_key_id=settings["aws.access.key.id"] or None,
            aws_secret_access_key=secret.value if secret is not None and secret.value else None,
            config=botocore.config.Config(
                retries={"max_attempts": settings["s3.part.retries"] + 1, "mode": "standard"},
                s3={"addressing_style": "path" if settings["s3.path.style.access.enabled"] else "auto"},
                connect_timeout=10,
                read_timeout=60,
            ),
        )

    def output(self, name: str) -> Output:
        return _S3Output(self, name)

    def call(self, operation: str, **arguments: Any) -> Any:
        """ConnectError where it makes no sense to try again."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            return getattr(self.client, operation)(Bucket=self.bucket, **arguments)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            text = f"S3 {operation} in {self.bucket}: {error.response.get('Error', {}).get('Code', status)}"
            if status in (400, 401, 403, 404, 405):
                raise ConnectError(text) from error
            raise RetriableError(text) from error
        except NoCredentialsError as error:
            raise ConnectError(f"S3: {error}") from None
        except BotoCoreError as error:
            raise RetriableError(f"S3 {operation} in {self.bucket}: {error}") from None

    def close(self) -> None:
        self.client.close()


def _put_arguments(settings: Mapping[str, Any]) -> dict[str, str]:
    given = {
        "ServerSideEncryption": settings["s3.ssea.name"],
        "SSEKMSKeyId": settings["s3.sse.kms.key.id"],
        "ACL": settings["s3.acl.canned"],
    }
    return {name: value for name, value in given.items() if value}


class _S3Output(Output):
    def __init__(self, store: S3Store, name: str) -> None:
        super().__init__(store.part_size)
        self._store, self._name = store, name
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._done = False

    def _move(self, data: bytes) -> None:
        if self._upload is None:
            begun = self._store.call("create_multipart_upload", Key=self._name, **self._store.put_arguments)
            self._upload = begun["UploadId"]
        for begin in range(0, len(data), self._store.part_size):
            self._part(len(self._parts) + 1, data[begin : begin + self._store.part_size])

    def _part(self, number: int, data: bytes) -> None:
        answer = self._store.call(
            "upload_part", Key=self._name, UploadId=self._upload, PartNumber=number, Body=data
        )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    def drain(self) -> None:
        """Parts but for the last are of one size: what is above it stays."""
        while self._held_bytes >= self._limit:
            whole = b"".join(self._held)
            self._move(whole[: self._limit])
            self._held = [whole[self._limit :]]
            self._held_bytes = len(self._held[0])

    def _finish(self, rest: bytes, name: str) -> None:
        if self._done:
            return
        if self._upload is None:
            self._store.call("put_object", Key=self._name, Body=rest, **self._store.put_arguments)
        else:
            if rest:
                self._part(len(self._parts) + 1, rest)
                self._held, self._held_bytes = [], 0
            self._store.call(
                "complete_multipart_upload",
                Key=self._name,
                UploadId=self._upload,
                MultipartUpload={"Parts": self._parts},
            )
        self._done = True

    def abort(self) -> None:
        if self._upload is not None and not self._done:
            with contextlib.suppress(ConnectError):
                self._store.call("abort_multipart_upload", Key=self._name, UploadId=self._upload)


# --- pyarrow's file systems ---------------------------------------------------------------------------------


def remote_store(uri: str, unfinished: str) -> Store:
    """HDFS by its own client, if that is installed."""
    if uri.startswith("hdfs://"):
        with contextlib.suppress(ModuleNotFoundError):
            from millstream.connect.connectors.storage.hdfs import HdfsStore

            return HdfsStore(uri, unfinished)
    return ArrowStore(uri, unfinished)


class ArrowStore(Store):
    """Whatever pyarrow has a URI for; HDFS by libhdfs (a Hadoop client and `CLASSPATH` have to be there)."""

    def __init__(self, uri: str, unfinished: str) -> None:
        from pyarrow import fs

        try:
            self.files, self.root = fs.FileSystem.from_uri(uri)
        except Exception as error:
            raise ConnectError(f"{uri} cannot be reached: {error}") from None
        self.unfinished = f"{self.root.rstrip('/')}/{unfinished}"

    def output(self, name: str) -> Output:
        return _ArrowOutput(self)

    def clean(self) -> None:
        with contextlib.suppress(OSError):
            self.files.delete_dir(self.unfinished)

    close = clean


class _ArrowOutput(Output):
    def __init__(self, store: ArrowStore) -> None:
        super().__init__(COPY_BYTES)
        self._store = store
        self._unfinished = f"{store.unfinished}/{uuid.uuid4().hex}"
        self._stream: Any = None
        self._done = False

    def _move(self, data: bytes) -> None:
        try:
            if self._stream is None:
                self._store.files.create_dir(self._store.unfinished, recursive=True)
                self._stream = self._store.files.open_output_stream(self._unfinished)
            self._stream.write(data)
        except OSError as error:
            # A stream cannot be cut: the task begins this range anew.
            raise ConnectError(f"cannot write {self._unfinished}: {error}") from None

    def _finish(self, rest: bytes, name: str) -> None:
        if self._done:
            return
        self._move(rest)
        self._held, self._held_bytes = [], 0
        target = f"{self._store.root.rstrip('/')}/{name}"
        try:
            self._stream.close()
            self._store.files.create_dir(target.rpartition("/")[0], recursive=True)
            self._name_it(target)
        except OSError as error:
            raise ConnectError(f"cannot write {target}: {error}") from None
        self._done = True

    def _name_it(self, target: str) -> None:
        """HDFS does not rename onto a file. One that is there is of the same range, from before a crash."""
        from pyarrow import fs

        if self._store.files.get_file_info(target).type is not fs.FileType.NotFound:
            self._store.files.delete_file(self._unfinished)
            return
        self._store.files.move(self._unfinished, target)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.close()
                self._store.files.delete_file(self._unfinished)
