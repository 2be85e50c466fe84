#!/usr/bin/env bash
# obstore reports a server that does not allow HEAD (405) as a file that is not there.
#
# Versions: obstore 0.12.1, zarr 3.4.2, numpy 2.5.5
# Expected: An error of another kind, as for 400, 410 or 501: 405 says that the method, not the
#   file, is what the server does not have. Web frameworks in which a route is registered for one
#   method answer so.
# Seen: FileNotFoundError, 'Object at location k not found', though `get` reads the file; zarr's
#   ObjectStore takes it for absence and says that the key does not exist.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  obstore==0.12.1 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
from obstore.store import HTTPStore
from zarr.storage import ObjectStore


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.send_response(int(self.path[1:4]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 10:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"data")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
store = HTTPStore.from_url(url, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def look(status):
    try:
        obstore.head(store, f"{status}/k")
    except Exception as error:
        return type(error).__name__


kinds = {status: look(status) for status in (404, 405, 410, 501)}
print(kinds, "get:", bytes(obstore.get(store, "405/k").bytes()))
assert kinds[404] == kinds[405] == "FileNotFoundError"
assert kinds[410] == kinds[501] == "GenericError"
assert bytes(obstore.get(store, "405/k").bytes()) == b"data"
exists = asyncio.run(ObjectStore(store, read_only=True).exists("405/k"))
print("zarr says it exists:", exists)
assert exists is False
server.shutdown()
EOF
