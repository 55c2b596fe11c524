"""A server with a certificate of its own, and commands that trust it or do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.server import flows
from tests.server.service import DEADLINE_SECONDS, Server

TLS = Path(__file__).parent.parent / "data" / "tls"
CERTIFICATE = str(TLS / "certificate.pem")


def test_commands_trust_the_certificate_that_they_are_told_to(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The server speaks HTTPS; a command refuses a certificate that nobody vouches for, and says how to trust it."""
    server = serve("--tls-cert", CERTIFICATE, "--tls-key", str(TLS / "key.pem"))
    url = f"https://127.0.0.1:{server.port}"
    assert server.said["url"] == url
    (tmp_path / "hello.yaml").write_text(flows.HELLO)

    def submit(**env: str) -> subprocess.CompletedProcess[str]:
        """Hand over a run and wait for it."""
        return subprocess.run(
            [sys.executable, "-m", "resile.cli.main", "submit", "hello.yaml", "--wait", "--server", url],
            cwd=tmp_path,
            env={**server.env, **env},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    refused = submit()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"the certificate of {url} is not trusted: self-signed certificate\n" in refused.stderr
    assert "hint: SSL_CERT_FILE names a file with a certificate to trust\n" in refused.stderr
    assert submit(SSL_CERT_FILE=CERTIFICATE).returncode == 0
