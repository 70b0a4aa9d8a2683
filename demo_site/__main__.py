"""`python -m demo_site`: serve an assembled site on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn

from .server import create_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo_site", description="Serve the assembled site.")
    parser.add_argument("--site", type=Path, default=Path("build/site"), help="the folder to serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--no-isolation", action="store_true", help="leave out the headers that threads need")
    options = parser.parse_args()
    if not (options.site / "index.html").is_file():
        parser.error(f"{options.site} has no index.html: python3 scripts/run.py assembles the site")
    app = create_app(options.site, isolated=not options.no_isolation)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main()
