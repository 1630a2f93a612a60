"""The ``sooner`` command: the only reader of the command line and of the environment.

Every option of ``sooner serve`` can also be given as ``SOONER_`` and its name in capitals.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sooner import __version__, policies
from sooner.errors import MissingExtraError, SoonerError

if TYPE_CHECKING:
    from cyclopts import App

    from sooner.bench.options import BenchOptions
    from sooner.server.options import ServeOptions
    from sooner.workload.options import WorkloadOptions

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    try:
        make_cli()()
    except (SoonerError, OSError) as error:  # OSError: a disk that is full, a folder that is not to be written to
        sys.exit(f"sooner: {error}")


def make_cli() -> "App":
    """The command-line application.

    Raises:
        MissingExtraError: the ``serve`` extra is not installed.
    """
    with needs_extra("serve", "the sooner command"):
        from cyclopts import App, Parameter
    app = App(
        name="sooner",
        help="Duration-aware scheduling for speech-to-text serving.",
        version=__version__,
        default_parameter=Parameter(negative_iterable=()),  # no --empty-goal
    )
    _add_serving(app)
    _add_measuring(app)
    _add_simulating(app)
    return app


@contextmanager
def needs_extra(extra: str, feature: str) -> Iterator[None]:
    """A module that is missing within the block is one of ``extra``. Raises ``MissingExtraError``."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra=extra, feature=feature) from error


def _add_serving(app: "App") -> None:
    from cyclopts import App, Parameter
    from cyclopts.config import Env

    from sooner.server.options import ServeOptions

    serving = App(name="serve", config=Env("SOONER_", command=False))
    app.command(serving)

    @serving.default
    def serve(options: Annotated[ServeOptions | None, Parameter(name="*")] = None) -> None:
        """Serve an OpenAI-compatible transcription API, short recordings before long ones."""
        run_server(options or ServeOptions())

    @app.command(name="policies")
    def list_policies() -> None:
        """List the scheduling policies, one line each."""
        for policy in policies():
            print(f"{policy.name:10}{policy.summary}")

    @app.command
    def demo(*, out: Path = Path("sooner-demo.png"), minutes: float = 10.0, clips: int = 12) -> None:
        """Serve the same long files and short clips under fcfs, sjf, hrrn and adaptive, and compare.

        Parameters
        ----------
        out
            Where to save the picture of who waited and who ran.
        minutes
            Length of each long file; there is one per worker.
        clips
            Number of short clips that arrive meanwhile.
        """
        with needs_extra("demo", "sooner demo"):
            from sooner.bench.demo import run_demo
        run_demo(out=out, long_s=minutes * 60, num_clips=clips)


def _add_measuring(app: "App") -> None:
    from cyclopts import Parameter

    from sooner.bench.options import BenchOptions
    from sooner.evidence.options import ReportOptions
    from sooner.workload.options import WorkloadOptions

    @app.command
    def bench(
        options: Annotated[BenchOptions | None, Parameter(name="*")] = None,
        traffic: Annotated[WorkloadOptions | None, Parameter(name="*")] = None,
    ) -> None:
        """Send the same traffic to several servers, or to sooner serve under several policies, and compare."""
        run_load_generator(options or BenchOptions(), traffic or WorkloadOptions())

    @app.command
    def report(
        runs: tuple[Path, ...],
        /,
        *,
        options: Annotated[ReportOptions | None, Parameter(name="*")] = None,
    ) -> None:
        """Make a page of figures, tables and plain words from runs.

        Parameters
        ----------
        runs
            Run files of sooner simulate, sooner bench or sooner serve, or folders of them.
        """
        with needs_extra("bench", "sooner report"):
            from sooner.evidence.report import write_report
            from sooner.evidence.run_file import read_runs
        print(write_report(read_runs(runs), options or ReportOptions()))


def _add_simulating(app: "App") -> None:
    from cyclopts import Parameter

    from sooner.simulator.options import CalibrateOptions, EngineOptions, PlanOptions, SimulateOptions
    from sooner.simulator.profile import load_profile, profile_names
    from sooner.workload.options import WorkloadOptions

    @app.command
    def simulate(
        options: Annotated[SimulateOptions | None, Parameter(name="*")] = None,
        engine: Annotated[EngineOptions | None, Parameter(name="*")] = None,
        traffic: Annotated[WorkloadOptions | None, Parameter(name="*")] = None,
    ) -> None:
        """Play traffic against the scheduler in virtual time, under every policy."""
        with needs_extra("bench", "sooner simulate"):
            from sooner.simulator.run import run_simulate
        run_simulate(engine or EngineOptions(), options or SimulateOptions(), traffic or WorkloadOptions())

    @app.command
    def plan(
        options: Annotated[PlanOptions | None, Parameter(name="*")] = None,
        engine: Annotated[EngineOptions | None, Parameter(name="*")] = None,
        traffic: Annotated[WorkloadOptions | None, Parameter(name="*")] = None,
    ) -> None:
        """Tell which policy, and how many replicas, meet goals for the time to text."""
        with needs_extra("bench", "sooner plan"):
            from sooner.simulator.plan import run_plan
        run_plan(engine or EngineOptions(), options or PlanOptions(), traffic or WorkloadOptions())

    @app.command(name="profiles")
    def list_profiles() -> None:
        """List the engine profiles that ship, one line each."""
        for name in profile_names():
            profile = load_profile(name)
            print(f"{name:16}{profile.engine}: {profile.model} on {profile.hardware}")

    @app.command
    def calibrate(
        records: tuple[Path, ...],
        /,
        *,
        options: Annotated[CalibrateOptions | None, Parameter(name="*")] = None,
    ) -> None:
        """Fit an engine profile to records of real requests, or to a journal of vLLM.

        Parameters
        ----------
        records
            Run files of sooner serve or sooner bench, folders of them, or the journal of one vLLM engine.
        """
        with needs_extra("bench", "sooner calibrate"):
            from sooner.simulator.calibrate import run_calibrate
        run_calibrate(records, options or CalibrateOptions())


def run_load_generator(options: "BenchOptions", traffic: "WorkloadOptions") -> None:
    """Measure; a stop signal ends it as a Ctrl-C does, with the servers that it started."""
    with needs_extra("bench", "sooner bench"):
        from sooner.bench.run import run_bench
    _raise_open_files_limit()
    for stop in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if hasattr(signal, stop):
            signal.signal(getattr(signal, stop), signal.default_int_handler)
    run_bench(options, traffic)


def run_server(options: "ServeOptions") -> None:
    """Load the model, serve until a stop signal, and close without losing a reply."""
    with needs_extra("serve", "sooner serve"):
        from sooner.server.app import Server, load_engine, make_access, make_app
        from sooner.server.listening import bind
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _raise_open_files_limit()
    access = make_access(options, api_key=os.environ.get("SOONER_API_KEY"))
    sockets = bind(options.host, options.port)
    engine, num_workers = load_engine(options)
    try:
        app = make_app(options, engine=engine, num_workers=num_workers, access=access)
        # Once it has shut down, uvicorn raises the signal again; by then it has done its work.
        signal.signal(signal.SIGTERM, lambda *_: None)
        with suppress(KeyboardInterrupt):
            asyncio.run(Server(app, options).serve(sockets))
    finally:
        engine.close()


def _raise_open_files_limit() -> None:
    """Each waiting client is an open socket, on either side, and the usual soft limit is 1,024."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65536 if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
