"""What a cloud checks before it serves, in front of an object store that checks nothing.

    python gate.py ADDRESS PORT URL

Requests must be signed, for the region of the bucket, with a key that is not `EXPIRED`.
"""

import re
import sys

from servers.faults import Request, Response, Rules
from servers.proxy import passing_on
from servers.serving import server

REGION = "us-east-1"
EXPIRED = "EXPIRED"
"""The access key of a token that is expired."""


def refusal(request: Request) -> Response | None:
    """Return the answer to a request that is not to be served."""
    signed = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", request.headers.get("authorization", ""))
    if signed is None:
        return _error(403, "AccessDenied", "Access Denied")
    if signed[1] == EXPIRED:
        return _error(400, "ExpiredToken", "The provided token has expired.")
    if signed[2] != REGION:
        words = f"the region '{signed[2]}' is wrong; expecting '{REGION}'"
        words = f"The authorization header is malformed; {words}"
        return _error(400, "AuthorizationHeaderMalformed", words, f"<Region>{REGION}</Region>")
    return None


def _error(status: int, code: str, words: str, more: str = "") -> Response:
    body = f"<Error><Code>{code}</Code><Message>{words}</Message>{more}</Error>"
    headers = {"content-type": "application/xml"}
    return Response(status=status, headers=headers, body=body.encode())


def main(address: str, port: str, url: str) -> None:
    """Serve until the process is ended."""
    passing = passing_on(url)
    made = server(
        lambda request: refusal(request) or passing(request),
        Rules(log=False),
        host=address,
        port=int(port),
    )
    made.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
