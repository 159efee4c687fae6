"""Check what a borrowed GPU has sent, file it in the repository, and write the pages that it changes.

    python research/gpu/bring_home.py DIR [DIR ...] [--suffix .png]

Each DIR is the --out of a command of `run.py`. Keep the folders: the repository does not hold the weights,
and a figure over two seeds needs the folders of both. A job that is filed has a JSON in research/gpu/done and
does not run again. The states of an unfinished job go to --work, to travel to the next machine.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

import jobs
import parcel
from anchorlens.extras.sweep import Cell
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.files.checkpoint import Checkpoint, library_versions, save_checkpoint
from jobs import Choice, Job
from run import code_of, source

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "research/figures"
PAPERS = ("quick", "paper-2l1h", "paper-gpt2", "paper-released")
"""Presets that a script of a figure takes as an option; every other script has one preset."""


class Parcel:
    """The checked results of one job."""

    def __init__(
        self, path: Path, known: Mapping[str, Job], data: Path | None = None, *, rehearsal: bool = False
    ) -> None:
        """Read and check the files of a job.

        Args:
            path: the JSON of the job.
            known: id -> the jobs of the queue.
            data: as for `run.py`.
            rehearsal: whether a rehearsal is taken too.

        Raises:
            ValueError: a file is damaged, the job is a rehearsal or not in the queue, other code has run, or
                a network is missing or not of the queue.
        """
        self.content, self.tensors = parcel.unpack(path)
        name = self.content["job"]
        if name not in known:
            raise ValueError(f"{path} must be of a job of queue.toml, got {name!r}. Mend the queue.")
        self.job = known[name]
        self.choice = Choice(**self.content["choice"])
        if self.choice.scale != 1 and not rehearsal:
            raise ValueError(f"{path} must be of a whole job, got a rehearsal. Give --rehearsal in a copy.")
        if self.job.data and data:
            self.choice = replace(self.choice, data=str(data / self.job.data))
        self.commit = commit_of(self.content["source"], path)
        if set(self.content["versions"]) != set(library_versions()):
            raise ValueError(
                f"{path} must name the versions of its libraries, got another list. Run it again."
            )
        self.named = SweepFolder(path.parent).runs_with_ids(jobs.runs(self.job, self.choice, "cpu"), [])
        self.networks = self.content.get("networks") or self.content.get("unfinished") or {}
        if not self.content.get("rows") and set(self.networks) != {name for name, _ in self.named}:
            raise ValueError(f"{path} must hold the {len(self.named)} networks of the queue, got other ones.")

    @property
    def place(self) -> str:
        """The tag of its figures and the precision: jobs of one place differ in their seeds."""
        return f"{self.job.tag or self.job.id}_{self.choice.matmul}"


def commit_of(code: str, path: Path) -> str:
    """The newest commit with this code; `not committed` where only the files of this checkout have it.

    Raises:
        ValueError: neither a commit nor this checkout has it.
    """
    for commit in git("rev-list", "--max-count=100", "HEAD").split():
        entries = [line.split() for line in git("ls-tree", "-r", commit, "anchorlens").splitlines()]
        if code_of({name: blob for *_, blob, name in entries}) == code:
            return commit
    if code != source():
        raise ValueError(f"{path} must be of code that is committed, got other code. Commit what has run.")
    return "not committed"


def git(*arguments: str) -> str:
    """What git prints in this repository; nothing where there is none."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def take_in(found: Parcel, folder: SweepFolder) -> None:
    """Write the networks of a job as finished cells of a sweep, which the figures' scripts read."""
    weights: dict[str, dict[str, Tensor]] = {}
    for key, weight in found.tensors.items():
        name, parameter = key.split("/", 1)
        weights.setdefault(name, {})[parameter] = weight.float()
    with folder.lock([run for _, run in found.named]) as named:
        for name, run in named:
            path, cell = folder.cell(name), found.networks[name]["cell"]
            write_log(path, found.networks[name]["log"])
            if name in weights:
                save_checkpoint(path / "ckpt.pt", checkpoint(run, weights[name], cell))
            (path / "cell.json").write_text(json.dumps(cell), encoding="utf-8")


def write_log(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Make a network's folder, and write its log."""
    path.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "log.jsonl").write_text(text, encoding="utf-8")


def checkpoint(run: Any, weights: Mapping[str, Tensor], cell: Mapping[str, Any]) -> Checkpoint:
    """The last weights of a network, as a run's folder has them."""
    metrics = {"status": cell["status"]}
    return Checkpoint(run.model_config, run.task, dict(weights), run.train_config, cell["step"], metrics)


def resume(found: Parcel, work: Path) -> None:
    """Write the states of an unfinished job where `run.py` looks for them."""
    folder = SweepFolder(work / found.job.id / "sweep")
    with folder.lock([run for _, run in found.named]):
        for name, run in found.named:
            write_log(folder.unfinished(name), found.networks[name])
            config = {"format": "anchorlens run", "format_version": 1, **run.to_dict(), "versions": {}}
            (folder.unfinished(name) / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for key, data in found.tensors.items():
        name, file = key.split("/")
        (folder.unfinished(name) / file).write_bytes(data.numpy().tobytes())
    begun = {name: found.content[name] for name in ("choice", "check", "seconds")}
    (work / found.job.id / "job.json").write_text(json.dumps(begun), encoding="utf-8")


def rows(cells: Sequence[Cell], job: Job) -> list[dict[str, Any]]:
    """A row for each network: what varies, how it ended, its accuracies, its labels."""
    varies = [name for name, values in {**job.set, **job.arms[0]}.items() if isinstance(values, list)]
    varies = list(dict.fromkeys([*varies, *job.arms[0], "seed"]))
    kept = ("step", "loss", "label", "by_probes_label")
    return [
        {
            **{name: cell.fields[name] for name in varies},
            "status": cell.status,
            **{name: cell.numbers[name] for name in kept},
            **{metric.name: cell.numbers[metric.name] for metric in cell.run.task.metrics},
        }
        for cell in cells
    ]


def mark_as_done(found: Parcel, cells: Sequence[Cell], figures: Mapping[str, str]) -> None:
    """Write a job's results, card, versions and commit into the repository."""
    kept = ("choice", "check", "seconds", "card", "versions")
    content = {
        "job": found.job.id,
        "commit": found.commit,
        **{name: found.content[name] for name in kept},
        "figures": figures,
        "rows": found.content["rows"] or rows(cells, found.job),
    }
    jobs.DONE.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    (jobs.DONE / f"{found.job.id}.json").write_text(text, encoding="utf-8")


def draw(found: Parcel, every: Sequence[Parcel], given: argparse.Namespace) -> dict[str, str]:
    """Run the scripts of the figures over all seeds that are here; script -> what came of it."""
    alike = [each for each in every if (each.place, each.job.figures) == (found.place, found.job.figures)]
    seeds = sorted({seed for each in alike for seed in jobs.seeds(each.job, each.choice)})
    outcome = {}
    for figure in found.job.figures:
        script, *own = figure.split()
        filed = {seed for path in figure_files(script, found, given) for seed in read(path)["seed"]}
        if filed - set(seeds):
            outcome[script] = f"not written: seeds {sorted(filed)} are filed; give the folders of all of them"
            continue
        preset = ["--preset", found.job.preset] if found.job.preset in PAPERS else []
        asked = [*own, *preset, "--seed", *map(str, seeds), "--as-trained", "--tag", found.place]
        asked += ["--sweep", str(given.home / found.place), "--out", str(given.figures)]
        asked += ["--suffix", given.suffix, *jobs.options(found.job, found.choice)]
        outcome[script] = called(SCRIPTS / f"{script}.py", asked)
        for path in figure_files(script, found, given):  # the script names the versions of this machine
            content = read(path) | {"versions": found.content["versions"]}
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return outcome


def figure_files(script: str, found: Parcel, given: argparse.Namespace) -> list[Path]:
    """The JSON that a script has written of a job, if there is one; some scripts lengthen their name."""
    return sorted(given.figures.glob(f"{script}*_{found.place}.json"))


def read(path: Path) -> dict[str, Any]:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def called(script: Path, arguments: Sequence[str] = ()) -> str:
    """Run a script of the figures in this process; `written`, or why it was not."""
    kept = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except (SystemExit, ValueError, LookupError) as error:
        return f"not written: {error}"
    finally:
        sys.argv, sys.path[:] = kept
    return "written"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, check everything, then file it."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--home", type=Path, default=Path("runs/gpu/home"), help="folder of the networks")
    parser.add_argument("--work", type=Path, default=Path("runs/gpu/work"), help="folder of unfinished jobs")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs/images/figures")
    parser.add_argument("--suffix", default=".png", help="of the pictures")
    parser.add_argument("--data", type=Path, help="folder that holds `cogs`, the files of job d2")
    parser.add_argument(
        "--rehearsal", action="store_true", help="take rehearsals; only in a copy of the repository"
    )
    given = parser.parse_args(arguments)
    known = {job.id: job for job in jobs.queue()}
    files = [path for folder in given.folders for path in sorted(folder.glob("*.json"))]
    found = [Parcel(path, known, given.data, rehearsal=given.rehearsal) for path in files]
    if not found:
        raise SystemExit(
            f"{given.folders[0]} must hold the JSON of a job, got none. Name the --out of run.py."
        )
    ended = [each for each in found if "unfinished" not in each.content]
    for each in ended:
        if each.networks:
            take_in(each, SweepFolder(given.home / each.place))
    for each in ended:
        folder = SweepFolder(given.home / each.place)
        figures = draw(each, ended, given)
        mark_as_done(each, list(folder.read(each.named, any_size=True)) if each.networks else [], figures)
        print(f"{each.job.id}: filed; {figures or 'no figure'}")
    for each in found:
        if each not in ended:
            resume(each, given.work)
            print(f"{each.job.id}: not finished; its states are in {given.work}")
    print(f"the pages of research/figures/replication: {called(SCRIPTS / 'page.py')}")


if __name__ == "__main__":
    main()
