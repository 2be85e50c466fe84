"""Serve a directory as pages in browsers need it: ranges, Last-Modified, CORS, isolation.

    python serve.py DIRECTORY [--port 8000]

It is for trying things on one machine: it listens on 127.0.0.1 only, and everybody there may read.
"""

import argparse
import os
import re
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

HEADERS = {
    "Accept-Ranges": "bytes",
    # pages of other servers may read, and see what their clients look at
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Range, ETag",
    # a page of this server gets shared memory
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Range, If-Match, If-None-Match",
    "Access-Control-Max-Age": "86400",
}


class Handler(SimpleHTTPRequestHandler):
    """Files with ranges; `SimpleHTTPRequestHandler` sends Last-Modified, and finds the files."""

    protocol_version = "HTTP/1.1"
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        """Send the headers of every answer."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def do_OPTIONS(self) -> None:
        """Allow what browsers ask about before they send a request."""
        self.send_response(HTTPStatus.NO_CONTENT)
        for name, value in PREFLIGHT.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        """Send a file, or the part of it that was requested."""
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        path = self.translate_path(self.path)
        if asked is None or asked.groups() == ("", "") or not os.path.isfile(path):
            super().do_GET()
            return
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin, end = interval(*asked.groups(), size)
            if begin >= end:
                self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Type", self.guess_type(path))
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            modified = os.fstat(file.fileno()).st_mtime
            self.send_header("Last-Modified", self.date_time_string(int(modified)))
            self.end_headers()
            file.seek(begin)
            self.wfile.write(file.read(end - begin))


def interval(first: str, last: str, size: int) -> tuple[int, int]:
    """Return begin and end of a range of a file."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1 if last else size, size)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()

    def handler(*args: object) -> Handler:
        return Handler(*args, directory=given.directory)

    with ThreadingHTTPServer(("127.0.0.1", given.port), handler) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
