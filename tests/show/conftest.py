"""Pages that the tests of the report look at, each written once; ours is imported as in `../conftest.py`."""

import dataclasses

import pytest
from few_questions import asked_less
from made_once import made_once


def hostile_verdict():
    """One whose every string is markup."""
    from known_verdicts import HOSTILE, whole_verdict

    verdict = whole_verdict(HOSTILE)
    evidence = dataclasses.replace(
        verdict.by_probes.evidence[0], reading=HOSTILE, meaning=HOSTILE, vote=HOSTILE
    )
    checkpoint = dataclasses.replace(verdict.subject.checkpoint, versions={HOSTILE: HOSTILE})
    return dataclasses.replace(
        verdict,
        explanation=HOSTILE,
        warnings=(HOSTILE, "\ud800 is no text"),
        by_probes=dataclasses.replace(verdict.by_probes, evidence=(evidence,)),
        subject=dataclasses.replace(verdict.subject, checkpoint=checkpoint, kind=HOSTILE, sha256=HOSTILE),
    )


def written_once(tmp_path_factory, name, write):
    """A page that the first process to ask for it writes, for all of them."""
    with asked_less():
        return made_once(tmp_path_factory, f"{name}.html", write)


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    """The page of one verdict with everything there is."""
    from known_verdicts import whole_verdict

    return written_once(tmp_path_factory, "one", lambda path: whole_verdict().report(path))


@pytest.fixture(scope="session")
def several(tmp_path_factory):
    """The page of two: one full of markup, one with nothing but a model."""
    from known_verdicts import bare_verdict

    from anchorlens.show import write_report

    def write(path):
        write_report([hostile_verdict(), bare_verdict()], path)

    return written_once(tmp_path_factory, "several", write)


@pytest.fixture(scope="session")
def four(tmp_path_factory):
    """The page of four with as much to say before anything is unfolded as there can be."""
    from known_verdicts import EVIDENCE, whole_verdict

    from anchorlens.show import write_report
    from anchorlens.show.report.panels import CARD
    from anchorlens.verdict.readings import READINGS

    evidence = tuple(
        dataclasses.replace(EVIDENCE[0], reading=reading.name, meaning=reading.meaning)
        for reading in READINGS
    )

    def write(path):
        verdicts = [whole_verdict(f"runs/{name}/ckpt.pt") for name in "abcd"]
        by_probes = dataclasses.replace(verdicts[0].by_probes, evidence=evidence)
        verdicts = [dataclasses.replace(verdict, by_probes=by_probes) for verdict in verdicts]
        write_report(verdicts, path, probes=list(CARD))

    return written_once(tmp_path_factory, "four", write)
