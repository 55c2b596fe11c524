"""`server`: serve a database until a signal comes."""

from __future__ import annotations

from resile.cli.parse import Call
from resile.errors import ResileError

PORT = 8700
_PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")


def serve(call: Call) -> int:
    """Serve a database until a signal comes."""
    try:
        from resile.server.main import ServerSettings
        from resile.server.main import serve as run_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        message = f"a server needs the package {error.name}"
        raise ResileError("server-unsupported", message, hint="pip install 'resile[server]'") from error
    port = call.whole("port")
    return run_server(
        ServerSettings(
            db=call.database,
            output=call.text("output") or call.settings.values.get("output"),
            host=call.text("host") or "127.0.0.1",
            port=PORT if port is None else port,
            slots=call.whole("slots"),
            token_file=call.text("token-file"),
            tls_cert=call.text("tls-cert"),
            tls_key=call.text("tls-key"),
            json=call.json,
        )
    )
