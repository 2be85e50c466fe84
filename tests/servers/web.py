"""nginx and Apache, as processes of a test, with a folder and a configuration of their own."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers.processes import free_port, running

_MODULES = Path("/usr/lib/apache2/modules")
_PATIENCE = 10.0  # seconds

_NGINX = """
daemon off; master_process off; pid {home}/pid; error_log {home}/errors;
events {{}}
http {{
    log_format ranges "$http_range"; access_log {home}/log ranges;
    client_body_temp_path {home}/t1; proxy_temp_path {home}/t2; fastcgi_temp_path {home}/t3;
    uwsgi_temp_path {home}/t4; scgi_temp_path {home}/t5;
    server {{ listen 127.0.0.1:{port}; root {home}/files; }}
}}
"""

_APACHE = """
ServerRoot {home}
ServerName localhost
PidFile {home}/pid
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
ErrorLog {home}/errors
LogFormat "%{{Range}}i" ranges
CustomLog {home}/log ranges
User www-data
Group www-data
DocumentRoot {home}/files
<Directory {home}/files>
Require all granted
</Directory>
"""

# one process each: whoever kills it ends all of it
PROGRAMS = {
    "nginx": (_NGINX, ["nginx", "-e", "{home}/errors", "-c", "{home}/conf"]),
    "apache2": (_APACHE, ["apache2", "-X", "-f", "{home}/conf"]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServer:
    """A server of the files in a folder."""

    url: str
    home: Path

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.home / "files"

    def requests(self, count: int) -> list[str]:
        """Return the ranges of each request so far, as soon as there are ``count``.

        A server may write its log after the client has the answer.
        """
        until = time.monotonic() + _PATIENCE
        while len(lines := (self.home / "log").read_text().splitlines()) < count:
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return lines


def installed(name: str) -> bool:
    """Return whether there is such a server."""
    return shutil.which(name) is not None and (name == "nginx" or _MODULES.exists())


@contextmanager
def serving(name: str) -> Iterator[WebServer]:
    """Run a server until the block ends."""
    text, command = PROGRAMS[name]
    # not where tests are told to write: Apache reads as another user, if it is started by root
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home, port = Path(folder), free_port()
        home.chmod(0o755)
        (home / "files").mkdir()
        (home / "conf").write_text(text.format(home=home, port=port, modules=_MODULES))
        with running([each.format(home=home) for each in command], port=port):
            yield WebServer(url=f"http://127.0.0.1:{port}", home=home)
