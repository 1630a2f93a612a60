"""The ``sooner`` command: the only reader of the command line and of the environment.

Every option of ``sooner serve`` can also be given as ``SOONER_`` and its name in capitals.
"""

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sooner import __version__, policies
from sooner.errors import MissingExtraError, SoonerError

if TYPE_CHECKING:
    from cyclopts import App

    from sooner.server.options import ServeOptions

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    try:
        make_cli()()
    except SoonerError as error:
        sys.exit(f"sooner: {error}")


def make_cli() -> "App":
    """The command-line application.

    Raises:
        MissingExtraError: the ``serve`` extra is not installed.
    """
    try:
        from cyclopts import App, Parameter
        from cyclopts.config import Env

        from sooner.server.options import ServeOptions
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra="serve", feature="the sooner command") from error

    app = App(
        name="sooner",
        help="Duration-aware scheduling for speech-to-text serving.",
        version=__version__,
        config=Env("SOONER_", command=False),
    )

    @app.command
    def serve(options: Annotated[ServeOptions | None, Parameter(name="*")] = None) -> None:
        """Serve an OpenAI-compatible transcription API, short recordings before long ones."""
        run_server(options or ServeOptions())

    @app.command(name="policies")
    def list_policies() -> None:
        """List the scheduling policies, one line each."""
        for policy in policies():
            print(f"{policy.name:8}{policy.summary}")

    @app.command
    def demo(*, out: Path = Path("sooner-demo.png"), minutes: float = 10.0, clips: int = 12) -> None:
        """Serve the same long files and short clips under fcfs, sjf and hrrn, and compare.

        Parameters
        ----------
        out
            Where to save the picture of who waited and who ran.
        minutes
            Length of each long file; there is one per worker.
        clips
            Number of short clips that arrive meanwhile.
        """
        try:
            from sooner.bench.demo import run_demo
        except ModuleNotFoundError as error:
            raise MissingExtraError(extra="demo", feature="sooner demo") from error
        run_demo(out=out, long_s=minutes * 60, num_clips=clips)

    return app


def run_server(options: "ServeOptions") -> None:
    """Load the model, serve until a stop signal, and close without losing a reply."""
    try:
        from sooner.server.app import Server, load_engine, make_app
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra="serve", feature="sooner serve") from error
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _raise_open_files_limit()
    engine, num_workers = load_engine(options)
    app = make_app(options, engine=engine, num_workers=num_workers)
    # Once it has shut down, uvicorn raises the signal again; by then it has done its work.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(KeyboardInterrupt):
        asyncio.run(Server(app, options).serve())


def _raise_open_files_limit() -> None:
    """Each waiting client is an open socket, and the usual soft limit of 1,024 is below --max-queue."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65536 if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
