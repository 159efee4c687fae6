"""One probe of several checkpoints, side by side."""

import json
import re
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from few_questions import FEWEST
from known_models import own_answers

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, save_checkpoint
from anchorlens.plots.side_by_side import side_by_side
from anchorlens.probes import OF_MIXTURES, SHIPPED, compare, information_flow, mask_key_token, stable_rank
from anchorlens.probes.shared.contract import needs_training_set, spec_of
from anchorlens.tasks.registry import read_task


def checkpoint(gamma, task=None, **fields):
    config = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=gamma, **fields)
    return Checkpoint.from_model(
        build_model(config), config, task or AnchorTask(), train_config=TrainConfig(seed=1), step=0
    )


@pytest.fixture(scope="module")
def pair():
    return [checkpoint(0.3), checkpoint(0.8, n_heads=2)]


@pytest.mark.parametrize("probe", SHIPPED, ids=lambda probe: probe.__name__)
@pytest.mark.usefixtures("few_updates")
def test_every_probe_stands_side_by_side(probe, pair):
    if probe in OF_MIXTURES:
        pair = [checkpoint(0.3, num_experts=2), checkpoint(0.8, num_experts=3)]
    if spec_of(probe).task_kind is not None:
        task = read_task({"kind": spec_of(probe).task_kind})
        pair = [checkpoint(0.3, task), checkpoint(0.8, task, n_heads=2)]
    options = dict(FEWEST.get(probe.__name__, {}))
    if needs_training_set(probe):  # of equal weights, since one training set is for both
        one = checkpoint(0.3)
        pair = [one, replace(one, model_config=replace(one.model_config, gamma=0.8))]
        options["training_set"] = own_answers(one.build_model())
    comparison = compare(pair, probe, **options)
    assert comparison.labels == ("gamma 0.3, seed 1, step 0", "gamma 0.8, seed 1, step 0")
    assert all(type(result).__name__ in repr(comparison) for result in comparison.results)
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False)).keys() == set(comparison.labels)
    single = [result.plot() for result in comparison.results]
    figure = comparison.plot()
    assert len(figure.data) == sum(len(one.data) for one in single)
    assert len(figure.layout.shapes) == sum(len(one.layout.shapes) for one in single)
    bars = [trace for trace in figure.data if getattr(trace, "showscale", None)]
    assert len(bars) <= 1
    names = [trace.name for trace in figure.data if trace.name and trace.showlegend]
    assert len(names) == len(set(names))
    assert figure.to_json() and single[0].to_json() == comparison.results[0].plot().to_json()


def test_columns_do_not_overlap_and_numeric_axes_are_the_same():
    figure = compare([checkpoint(0.3), checkpoint(0.8), checkpoint(0.9)], stable_rank).plot()
    domains = [figure.layout[axis].domain for axis in ("xaxis", "xaxis2", "xaxis3")]
    assert domains[0][1] < domains[1][0] and domains[1][1] < domains[2][0]
    assert figure.layout.xaxis2.matches == figure.layout.xaxis3.matches == "x"
    texts = [note.text for note in figure.layout.annotations]
    assert texts[0] == "<b>gamma 0.3, seed 1, step 0</b>" and len(texts) == 3


def test_files_keep_their_names_which_wrap_and_stay_text(tmp_path):
    paths = [tmp_path / run / "ckpt.pt" for run in ("a" * 60, "b", "c<b>")]
    for path, gamma in zip(paths, (0.3, 0.8, 0.9), strict=True):
        path.parent.mkdir()
        save_checkpoint(path, checkpoint(gamma))
    comparison = compare([*paths, checkpoint(0.5)], stable_rank)
    assert comparison.labels == (
        f"{'a' * 60}/ckpt.pt", "b/ckpt.pt", "c<b>/ckpt.pt", "gamma 0.5, seed 1, step 0"
    )  # fmt: skip
    texts = [note.text for note in comparison.plot().layout.annotations]
    assert texts[0].count("<br>") and "".join(re.split("<.*?>", texts[0])) == comparison.labels[0]
    assert texts[1:3] == ["<b>b/ckpt.pt</b>", "<b>c&lt;b&gt;/ckpt.pt</b>"]


def test_axes_of_a_tsne_are_not_compared():
    figure = compare([checkpoint(0.3), checkpoint(0.8)], mask_key_token, n_sequences=4).plot()
    assert figure.layout.xaxis2.matches is None


def test_boxes_and_notes_go_with_their_column():
    def one(title):
        figure = go.Figure(go.Heatmap(z=[[1, 2], [3, 4]]))
        figure.add_shape(type="rect", x0=0, x1=1, y0=0, y1=1)
        figure.add_annotation(x=0.5, y=0.5, text="within")
        figure.add_annotation(x=0.5, y=1, xref="paper", yref="paper", text="above")
        return figure.update_layout(title=title, width=600, height=400)

    figure = side_by_side([one("a"), one("b")], ["left", "right"])
    assert [(shape.xref, shape.yref) for shape in figure.layout.shapes] == [("x", "y"), ("x2", "y2")]
    places = {(note.text, note.xref): note.x for note in figure.layout.annotations}
    assert places["within", "x"] == places["within", "x2"] == 0.5
    above = [note.x for note in figure.layout.annotations if note.text == "above"]
    assert above == pytest.approx([0.1875, 0.6875])  # the middle of each column, of which .75 are used
    assert [trace.showscale for trace in figure.data] == [False, True]


def test_labels_are_yours_or_told_apart(pair):
    assert compare(pair, "stable_rank", labels=["large", "small"]).labels == ("large", "small")
    same = compare([pair[0], pair[0]], "stable_rank").labels
    assert same == ("1: gamma 0.3, seed 1, step 0", "2: gamma 0.3, seed 1, step 0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], "stable_rank"), "models must contain at least one model, got none"),
        (([0], "stable_ranks"), "probe must be one of"),
        (([0], information_flow, {"labels": ["a", "b"]}), "labels must contain 1 labels, got 2"),
        (([0], information_flow, {"tokens": [1, 2]}), r"^gamma 0.3, seed 1, step 0: tokens must be"),
        (
            ([0], information_flow, {"token": [1]}),
            r"information_flow.*option, got 'token'",
        ),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, message, pair):
    which, probe, *options = arguments
    with pytest.raises(ValueError, match=message):
        compare([pair[i] for i in which], probe, **(options[0] if options else {}))
