"""Pages that the tests of the report look at, each written once."""

import dataclasses

import pytest
from known_verdicts import HOSTILE, bare_verdict, whole_verdict
from quick_tsne import quick_tsne

from anchorlens.show import write_report


def hostile_verdict():
    """One whose every string is markup."""
    verdict = whole_verdict(HOSTILE)
    evidence = dataclasses.replace(
        verdict.mechanism.evidence[0], reading=HOSTILE, meaning=HOSTILE, vote=HOSTILE
    )
    checkpoint = dataclasses.replace(verdict.subject.checkpoint, versions={HOSTILE: HOSTILE})
    return dataclasses.replace(
        verdict,
        explanation=HOSTILE,
        warnings=(HOSTILE, "\ud800 is no text"),
        mechanism=dataclasses.replace(verdict.mechanism, evidence=(evidence,)),
        subject=dataclasses.replace(verdict.subject, checkpoint=checkpoint, kind=HOSTILE, sha256=HOSTILE),
    )


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    """The page of one verdict with everything there is."""
    path = tmp_path_factory.mktemp("one") / "report.html"
    with quick_tsne():
        whole_verdict().report(path)
    return path


@pytest.fixture(scope="session")
def several(tmp_path_factory):
    """The page of two: one full of markup, one with nothing but a model."""
    path = tmp_path_factory.mktemp("several") / "report.html"
    with quick_tsne():
        write_report([hostile_verdict(), bare_verdict()], path)
    return path
