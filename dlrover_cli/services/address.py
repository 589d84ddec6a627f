"""Where a service is: a URL taken apart, without anything that must not be shown."""

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_PORTS = {"http": 80, "https": 443}
_SEPARATORS = re.compile(r"[/?&=;]")
_SHORTEST_SECRET = 6
_PRINTABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The part of a URL that all questions to a service share."""

    is_tls: bool
    host: str
    port: int
    path: str = field(repr=False)
    """Without a slash at its end, unless it is secret: then it is as it was written."""
    is_path_secret: bool = False
    """Whether who knows the path may use the service; then it is in no message."""

    def __str__(self) -> str:
        scheme = "https" if self.is_tls else "http"
        path = "/…" if self.is_path_secret and self.path else self.path
        return f"{scheme}://{self.authority}{path}"

    @property
    def authority(self) -> str:
        """For the `Host` header: the port is named where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == _PORTS["https" if self.is_tls else "http"]
        return host if is_usual else f"{host}:{self.port}"

    def hide(self, said: str) -> str:
        """What the service said, without the parts of a secret path: many repeat it in errors."""
        if self.is_path_secret:
            parts = {part for part in _SEPARATORS.split(self.path) if len(part) >= _SHORTEST_SECRET}
            for part in sorted(parts, key=len, reverse=True):
                said = said.replace(part, "…")
        return said

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent stays on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower().rstrip(".") == "localhost"


def parse_address(url: str) -> ServiceAddress:
    """Take a URL apart; ValueError with a sentence, which never repeats a password."""
    parts, address = _parse(url)
    if parts.query or parts.fragment:
        raise ValueError("the URL has a ? or a #, and a path is added at its end")
    return replace(address, path=parts.path.rstrip("/"))


def parse_hook(url: str) -> ServiceAddress:
    """The same for a URL that is used as it is, and that nobody else shall see."""
    parts, address = _parse(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if target.startswith("?"):
        target = f"/{target}"
    return replace(address, path=target, is_path_secret=True)


def _parse(url: str) -> tuple[SplitResult, ServiceAddress]:
    if _PRINTABLE.fullmatch(url) is None:
        raise ValueError("the URL is empty, or has spaces or characters that belong in no URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the URL cannot be read: {_without_secret(str(error), url)}") from None
    if parts.scheme not in _PORTS:
        raise ValueError("the URL begins with neither http:// nor https://")
    if "@" in parts.netloc:
        raise ValueError("the URL holds a user name or a password, which would be seen in logs")
    if not parts.hostname:
        raise ValueError("the URL names no host")
    if port == 0:
        raise ValueError("the URL has port 0, on which nothing can be reached")
    address = ServiceAddress(
        is_tls=parts.scheme == "https",
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path="",
    )
    return parts, address


def is_path(text: str) -> bool:
    """Whether this can be added to an address after a slash."""
    return _PATH.fullmatch(text) is not None


def _without_secret(reason: str, url: str) -> str:
    return "it is not a valid URL" if "@" in url else reason


_PATH = re.compile(r"(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/-]+")
