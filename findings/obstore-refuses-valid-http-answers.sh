#!/usr/bin/env bash
# obstore, and icechunk with it, refuses two forms of a 206 answer that HTTP allows: a body in
# chunked transfer coding, and a complete length that the server does not know.
#
# Versions: obstore 0.12.1, icechunk 2.3.0, fsspec 2026.9.0, aiohttp 3.14.5, zarr 3.4.2, numpy
#   2.5.5
# Expected: The bytes: RFC 9110 lets Content-Range say `bytes 5-8/*`, and RFC 9112 forbids a
#   Content-Length beside a transfer coding (proxies that compress or stream answer so).
# Seen: GenericError, 'Content-Length Header missing from response' and 'Failed to parse value for
#   CONTENT_RANGE header'. fsspec reads both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  obstore==0.12.1 icechunk==2.3.0 zarr==3.4.2 fsspec==2026.9.0 aiohttp==3.14.5 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import icechunk
import obstore
import zarr
from obstore.store import HTTPStore

BODY = bytes(range(100))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = BODY[first : last + 1]
        unknown, chunked = self.path.startswith("/unknown"), self.path.startswith("/chunked")
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{'*' if unknown else len(BODY)}")
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 10:00:00 GMT")
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
            part = b"%x\r\n%s\r\n0\r\n\r\n" % (len(part), part)
        else:
            self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/"


def by_obstore(form):
    store = HTTPStore.from_url(url, client_options={"allow_http": True})
    return bytes(obstore.get_range(store, f"{form}/k", start=5, end=9))


def by_icechunk(form):
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(url, icechunk.http_store({"allow_http": "true"}))
    config.set_virtual_chunk_container(container)
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(), config=config, authorize_virtual_chunk_access={url: None}
    )
    store = repository.writable_session("main").store
    array = zarr.create_array(store, shape=(4,), chunks=(4,), dtype="u1", compressors=None)
    store.set_virtual_ref("c/0", f"{url}{form}/k", offset=5, length=4)
    return array[:].tobytes()


def by_fsspec(form):
    return fsspec.filesystem("http").cat_file(f"{url}{form}/k", 5, 9)


def read(reader, form):
    try:
        return reader(form)
    except Exception as error:
        return str(error)


EXPECTED = {
    "usual": BODY[5:9],
    "chunked": "Content-Length Header missing from response",
    "unknown": "Failed to parse value for CONTENT_RANGE header",
}
for form, expected in EXPECTED.items():
    assert read(by_fsspec, form) == BODY[5:9]
    for reader in (by_obstore, by_icechunk):
        answer = read(reader, form)
        assert expected in answer, answer
    print(form, "obstore and icechunk:", expected)
server.shutdown()
EOF
