"""The command line: parsing only. torch and the lab are imported by the commands, not before."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from breakeven import __version__
from breakeven.errors import BreakevenError, UsageError

INTERRUPTED = 130
STOPPED = (
    "A study runs until its cells are done. It was interrupted, and all finished cells are stored. "
    "Run the same command again to go on."
)
UNWRITABLE = (
    "A study reads and writes files in its folder and in temporary folders. The system answered: "
    "{}. Free some space or mend the permissions, and run the same command again to go on."
)

app = typer.Typer(
    name="breakeven",
    help="After how many calls does compiling your PyTorch model pay?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Names = Annotated[list[str], typer.Argument(metavar="SUBJECT...", show_default=False)]


@app.command()
def study(
    subjects: Names,
    compilers: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    experiments: Annotated[str, typer.Option()] = "fusion,overhead,shapes",
    calls: Annotated[int, typer.Option(min=1, help="Calls you expect before a restart.")] = 10_000,
    shapes: Annotated[str, typer.Option(help="A list, a range, zipf:, uniform: or a file.")] = "",
    inputs: Annotated[str, typer.Option(help="A file of real inputs.")] = "",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Override a constant.")
    ] = None,
    threads: Annotated[str, typer.Option(help="Thread counts, separated by commas.")] = "",
    budget: Annotated[
        float | None, typer.Option(min=0.1, help="Minutes; 10 a subject, 3 with --quick.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one cell may take.")] = 300.0,
    memory: Annotated[
        float | None, typer.Option(min=0.1, help="GiB that one cell may hold.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="One process a cell, no intervals.")] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="Default: study-SUBJECT.")] = "",
    fresh: Annotated[bool, typer.Option(help="Forget what DIR holds.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Print every table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure compilers on SUBJECT: what they gain, what they cost, after how many calls they pay.

    SUBJECT is file.py[:name], hf:DIR, hf:CONFIG.json, hf:Class?field=value, timm:NAME,
    torchvision:NAME, pt2:FILE, onnx:FILE, graphnet:DIR, or a built-in name (`breakeven list
    subjects`).
    """
    from breakeven.lab import api

    request = api.request(
        subjects=subjects,
        compilers=_split(compilers),
        experiments=_split(experiments),
        calls=calls,
        shapes=shapes,
        inputs=inputs,
        overrides=_pairs(overrides or []),
        threads=_numbers(threads, "--threads"),
        budget=budget,
        timeout=timeout,
        memory=memory,
        quick=quick,
        out=out,
        command=["breakeven", *sys.argv[1:]],
    )
    try:
        api.run_in_terminal(request, fresh=fresh, whole=tables, as_json=json)
    except KeyboardInterrupt as stopped:
        typer.echo(STOPPED, err=True)
        raise typer.Exit(INTERRUPTED) from stopped


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR")],
    tables: Annotated[bool, typer.Option("--tables", help="Print every table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    csv: Annotated[str, typer.Option(metavar="DIR", help="Write every table as CSV.")] = "",
) -> None:
    """Compute the tables and the page of a study anew from its records."""
    from breakeven.lab import api

    api.report_in_terminal(folder, whole=tables, as_json=json, csv=csv)


@app.command()
def compare(
    old: Annotated[str, typer.Argument(metavar="OLD")],
    new: Annotated[str, typer.Argument(metavar="NEW")],
    fail_if: Annotated[
        str, typer.Option(help="slower, slower-start or later-break-even: exit with 1.")
    ] = "",
    other_machine: Annotated[bool, typer.Option(help="Compare across machines.")] = False,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say what changed between two studies: ratio to eager, cold start, break-even count."""
    from breakeven.lab import api

    if api.compare_in_terminal(old, new, fail_if, other_machine=other_machine, as_json=json):
        raise typer.Exit(1)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(metavar="subjects|compilers|suites")],
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the built-in subjects, the compilers and their techniques, or the suites."""
    from breakeven.lab import listing

    listing.show(what, as_json=json)


@app.command()
def doctor(
    quick: Annotated[bool, typer.Option(help="A shorter look.")] = False,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure this machine: noise floor, bandwidth curve, peak, threads, and what is installed."""
    from breakeven.lab import listing

    listing.doctor(quick=quick, as_json=json)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry of the `breakeven` command; every failure ends in three sentences and an exit code."""
    try:
        app(standalone_mode=True)
    except BreakevenError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        place = f" at {error.filename}" if error.filename else ""
        problem = UNWRITABLE.format(f"{error.strerror or error}{place}")
        typer.echo(problem, err=True)
        sys.exit(3)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in _split(text)]
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise UsageError(
            f"{option} takes whole numbers from 1 on, separated by commas",
            f"{text!r} was given",
            f"Write for example {option} 1,2",
        )
    return numbers


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                "--set takes NAME=VALUE with the name of a constant in the subject's file",
                f"{text!r} was given",
                "Write for example --set batch_size=8",
            )
        pairs[name] = value
    return pairs


if __name__ == "__main__":
    main()
