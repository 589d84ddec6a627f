"""The body of an answer: read within bounds, and as JSON without surprises."""

import json
import zlib
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from math import isfinite
from typing import Any

LARGEST = 10 << 20
"""Bytes of an answer, on the wire and after decompression; as in Volcano."""
MOST_VALUES = 50_000
"""Ten megabytes of empty lists take a second to read, long after the deadline."""
_CHUNK = 1 << 16
_START = 4096
_GZIP = ("gzip", "x-gzip")
_WBITS = zlib.MAX_WBITS | 16  # gzip, and nothing else
_BOM = b"\xef\xbb\xbf"


class BadBody(ValueError):
    """Why a body cannot be used, as the rest of a sentence that begins with the URL."""


def read_body(response: HTTPResponse) -> bytes:
    """The whole body. Raises BadBody, OSError and HTTPException."""
    encoding = _encoding(response)
    if encoding not in ("identity", *_GZIP):
        raise BadBody(f"answered in the encoding {encoding[:40]!r}, which nobody asked for")
    if response.length is not None and response.length > LARGEST:
        raise BadBody(_TOO_LARGE)
    body = _read(response)
    return body if encoding == "identity" else _decompressed(body)


def read_start(response: HTTPResponse) -> str:
    """What can be read of the beginning of a text. Raises OSError and HTTPException."""
    start = response.read(_START)
    if _encoding(response) in _GZIP:
        with suppress(zlib.error):
            start = zlib.decompressobj(wbits=_WBITS).decompress(start, _START)
    return start.decode(errors="replace")


def has_small_rest(response: HTTPResponse) -> bool:
    """Whether there was a short body, which is read and forgotten; the connection is free then."""
    if response.length is None or response.length > _START:
        return False
    with suppress(OSError, HTTPException):
        response.read()
        return not response.length
    return False


def parse_json(body: bytes) -> Any:
    """The one value that a body holds. Raises BadBody."""
    if not body.strip():
        raise BadBody("answered with an empty body")
    if body.startswith(_BOM):
        raise BadBody("answered with a byte order mark before its JSON")
    if body.count(b",") > MOST_VALUES:
        raise BadBody(f"answered with more than {MOST_VALUES:,} values")
    try:
        return _DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise BadBody(f"answered with JSON that is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise BadBody("answered with JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise BadBody(f"answered with something that is not JSON: {what} at {error.pos}") from None
    except ValueError as error:
        raise BadBody(f"answered with JSON that holds {error}") from None


def _encoding(response: HTTPResponse) -> str:
    return (response.getheader("Content-Encoding") or "identity").strip().lower()


def _read(response: HTTPResponse) -> bytes:
    parts, size = [], 0
    while chunk := response.read(_CHUNK):
        size += len(chunk)
        if size > LARGEST:
            raise BadBody(_TOO_LARGE)
        parts.append(chunk)
    if response.length:
        raise BadBody(f"broke off after {size} of {size + response.length} bytes of its answer")
    return b"".join(parts)


def _decompressed(body: bytes) -> bytes:
    unpack = zlib.decompressobj(wbits=_WBITS)
    try:
        plain = unpack.decompress(body, LARGEST + 1)
    except zlib.error:
        raise BadBody("answered with something that is not gzip, as it says") from None
    if len(plain) > LARGEST:
        raise BadBody(_TOO_LARGE)
    if not unpack.eof or unpack.unused_data:
        raise BadBody("answered with gzip that breaks off, or goes on after its end")
    return plain


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]}, a number too large to be one")
    return number


def _refuse(text: str) -> Any:
    raise ValueError(f"{text}, which is no number of JSON")


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number of too many digits")
    return int(text)


_TOO_LARGE = f"answered with more than {LARGEST >> 20} MiB"
_MOST_DIGITS = 100
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, parse_int=_whole)
