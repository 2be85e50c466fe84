"""Passes requests on to a server; what the rules say goes wrong on the way.

The ``Host`` header stays the client's, so that signatures stay valid.
"""

import http.client
from urllib.parse import urlsplit

from servers.faults import Request, Response
from servers.serving import Answer

# about the connection, not about what is sent over it
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


def passing_on(url: str) -> Answer:
    """Return a function that asks the server at ``url``, each time on a new connection."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    assert host is not None

    def answer(request: Request) -> Response:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        try:
            connection.putrequest(
                request.method, request.target, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body)
            found = connection.getresponse()
            headers = {k.lower(): v for k, v in found.getheaders()}
            length = headers.get("content-length")
            kept = {name: value for name, value in headers.items() if name not in _HOP}
            if request.method == "HEAD" and length is not None:
                kept["content-length"] = length
            return Response(status=found.status, headers=kept, body=found.read())
        finally:
            connection.close()

    return answer
