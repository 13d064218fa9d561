"""Checksums of files: of a whole one, and one that a file begins with."""

import hashlib
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

DIGEST = 32  # bytes of a checksum


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_after_checksum(file: BinaryIO, content: bytes | memoryview) -> None:
    """Write the SHA-256 of the content and then the content. Raises OSError."""
    file.write(hashlib.sha256(content).digest())
    file.write(content)


def is_whole(file: BufferedReader) -> bool:
    """Whether a file of `write_after_checksum` is undamaged; its position is then where the content begins."""
    digest = file.read(DIGEST)
    whole = hashlib.file_digest(file, "sha256").digest() == digest
    file.seek(DIGEST)
    return whole
