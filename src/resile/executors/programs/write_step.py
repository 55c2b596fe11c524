"""Checks a content and writes it to a file, as the program of a `write_file` step with `format: json` or `yaml`.

    RESILE_STEP (JSON): path, content (or content_file, if it is large), mode, format
    exit: 0 done, 1 the content is not in that format, or the file can't be written

Content that is data already is written in the format. JSON is indented; YAML text stays as it is. The check is not
made in the engine, because a large YAML text takes seconds.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_REFUSED = 1


def main() -> int:
    """Write the file; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    if "settings_file" in step:
        with open(step["settings_file"], "rb") as opened:
            step = json.loads(opened.read())
    if "content_file" in step:
        with open(step["content_file"], encoding="utf-8", errors="surrogateescape") as opened:
            step["content"] = opened.read()
    make = _json_text if step["format"] == "json" else _yaml_text
    try:
        text = make(step["content"])
    except (ValueError, RecursionError) as problem:
        return _complain(f"the content is not {step['format'].upper()}: {problem}")
    try:
        write(step["path"], text.encode("utf-8", "surrogateescape"), step["mode"])
    except OSError as error:
        return _complain(f"can't write {step['path']}: {error.strerror}")
    return 0


def _complain(message: str) -> int:
    sys.stderr.write(f"{' '.join(message.split())}\n")
    return EXIT_REFUSED


def _json_text(content: Any) -> str:
    data = json.loads(content) if isinstance(content, str) else content
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _yaml_text(content: Any) -> str:
    """The content, which must be YAML."""
    import yaml

    try:
        text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
        for _ in yaml.compose_all(text, yaml.SafeLoader):
            pass
    except yaml.YAMLError as problem:
        raise ValueError(str(problem)) from problem
    return str(text)


def write(path: str, data: bytes, mode: int) -> None:
    """Write the file beside its place, sync it, and rename it, so that it appears whole or not at all."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f".{name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
        except OSError:
            # On a full disk it would keep the disk full.
            os.unlink(part)
            raise
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


if __name__ == "__main__":
    sys.exit(main())
