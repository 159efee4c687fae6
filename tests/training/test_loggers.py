"""TensorBoard's files read by TensorBoard itself, and a run of W&B without a network."""

import json
import struct

import pytest
from anchorlens_command import call
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from anchorlens.recipes.presets import preset
from anchorlens.training import logging as loggers
from anchorlens.training.loop import OnLogError
from anchorlens.training.run import train, train_many
from anchorlens.training.run_folder import read_log

TINY = {
    "n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "key_max": 40, "n_samples": 256, "batch_size": 64,
    "steps": 20, "log_every": 5, "eval_every": 10, "device": "cpu",
}  # fmt: skip
RUN = preset("quick", **TINY)


def scalars(folder):
    """Name -> [(step, value)], as TensorBoard reads them."""
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def single(value):
    """As float32, which TensorBoard keeps."""
    return struct.unpack("f", struct.pack("f", value))[0]


class TestTensorBoard:
    def test_its_own_reader_finds_every_number_of_the_log(self, tmp_path):
        with pytest.raises(OnLogError):  # a part of the run
            self.trained(tmp_path, stop=10)
        assert [step for step, _ in scalars(tmp_path / "events")["loss"]] == [5, 10]
        self.trained(tmp_path)
        log, found = read_log(tmp_path / "run/log.jsonl"), scalars(tmp_path / "events")
        assert found.keys() == {name for line in log for name in line} - {"step"} | {"epoch"}
        for name in found.keys() - {"epoch"}:
            assert found[name] == [(line["step"], single(line[name])) for line in log if name in line]
        assert found["epoch"] == [(5, 1.25), (10, 2.5), (15, 3.75), (20, 5.0)]

    def trained(self, tmp_path, stop=None):
        logger = loggers.TensorBoard(tmp_path / "events")

        def on_log(line):
            logger.log(line)
            if line["step"] == stop:
                raise InterruptedError

        try:
            train(*RUN, out=tmp_path / "run", resume=True, on_log=on_log)
        finally:
            logger.close()

    def test_steps_that_are_made_again_are_shown_once(self, tmp_path):
        for steps in ((5, 10, 15), (10, 15, 20)):  # the second is a run that went on from step 5
            logger = loggers.TensorBoard(tmp_path)
            for step in steps:
                logger.log({"step": step, "loss": float(len(steps) * step), "id_accuracy": None})
            logger.close()
        assert scalars(tmp_path) == {"loss": [(5, 15.0), (10, 30.0), (15, 45.0), (20, 60.0)]}

    def test_many_runs_have_a_folder_each(self, tmp_path):
        runs = [preset("quick", **TINY, seed=seed) for seed in range(2)]
        logger = loggers.TensorBoard(tmp_path)
        results = train_many(runs, workers=1, on_log=logger)
        logger.close()
        for place, result in enumerate(results):
            losses = [(line["step"], single(line["loss"])) for line in result.log]
            assert scalars(tmp_path / f"run_{place}")["loss"] == losses

    def test_the_command_writes_it(self, tmp_path):
        options = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
        call("train", *options, "--out", tmp_path / "run", "--tensorboard", tmp_path / "events")
        assert [step for step, _ in scalars(tmp_path / "events")["ood_accuracy"]] == [10, 20]

    def test_a_file_in_its_place_is_refused(self, tmp_path):
        (tmp_path / "events").write_text("mine")
        done = call("train", "--out", tmp_path / "run", "--tensorboard", tmp_path / "events", code=2)
        assert "must be the path of a folder, got the file" in done.stderr
        assert (tmp_path / "events").read_text() == "mine" and not (tmp_path / "run").exists()


def records(path):
    """The records of a .wandb file: behind a head of 7 bytes, each with its checksum, length and kind."""
    data, at = path.read_bytes(), 7
    while at + 7 <= min(len(data), 2**15):  # of its first block
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if kind == 1:
            yield data[at + 7 : at + 7 + length]
        at += 7 + length


class TestWandB:
    @pytest.fixture
    def wandb(self, tmp_path, monkeypatch):
        for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
            monkeypatch.setenv(f"WANDB_{name}", value)
        return pytest.importorskip("wandb")

    @pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb")
    def test_a_run_that_is_offline_holds_every_number_of_the_log(self, wandb, tmp_path):
        from wandb.proto import wandb_internal_pb2

        with wandb.init(project="anchors") as run:
            result = train(*RUN, on_log=loggers.WandB(run))
            loggers.WandB().log({"run": 3, "step": 7, "loss": 2.0})  # of train_many, to the run that is open
        assert wandb.run is None
        wandb.teardown()  # what it has written is on the disk then
        (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
        logged, steps_of = [], {}
        for data in records(path):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or ".".join(item.nested_key): item.value_json for item in record.history.item
                }
                logged.append({name: json.loads(value) for name, value in items.items() if name[0] != "_"})
            elif record.WhichOneof("record_type") == "metric":
                steps_of[record.metric.name] = record.metric.step_metric
        *lines, last = logged
        epochs = [line["step"] / 4 for line in result.log]  # of 256 / 64 steps
        assert lines == [{"epoch": e, **line} for e, line in zip(epochs, result.log, strict=True)]
        assert last == {"run_3/loss": 2.0, "run_3/step": 7}
        assert (
            steps_of["loss"] == steps_of["ood_accuracy"] == "step" and steps_of["run_3/loss"] == "run_3/step"
        )

    def test_it_begins_no_run_by_itself(self, wandb):
        with pytest.raises(ValueError, match=r"WandB must get a run, got none. Call wandb\.init"):
            loggers.WandB()
        assert wandb.run is None
