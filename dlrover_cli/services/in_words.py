"""What a failed exchange is called, as the rest of a sentence that begins with the URL."""

import socket
import ssl
from http.client import HTTPException, IncompleteRead, RemoteDisconnected

from dlrover_cli.services.faults import shown


def in_words(error: Exception) -> str:
    """The sentence's rest; it never quotes what was sent."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {shown(error.verify_message)}"
        case ssl.SSLError():
            return f"does not speak TLS as it should: {shown(error.reason or str(error))}"
        case socket.gaierror():
            return f"has a name that cannot be resolved: {error.strerror}"
        case UnicodeError():
            return "has a name that cannot be resolved: it is no host name"
        case ConnectionRefusedError():
            return "refused the connection: nothing listens there"
        case RemoteDisconnected():
            return "closed the connection without an answer"
        case ConnectionError():
            return f"broke the connection off: {error.strerror or type(error).__name__}"
        case IncompleteRead():
            return "broke its answer off"
        case HTTPException():
            return f"did not answer in HTTP: {shown(str(error), 80) or type(error).__name__}"
        case OSError():
            return f"cannot be reached: {error.strerror or error}"
        case _:
            return f"did not answer in HTTP: {type(error).__name__}"
