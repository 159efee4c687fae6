"""Our own format is told by its content, in a file or the folder of a run; what nothing reads is refused."""

import os
from dataclasses import replace

import pytest
import torch
from foreign_checkpoints import TINY, write_own

from anchorlens.files.checkpoint import load_checkpoint, save_checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.safe import CheckpointError
from anchorlens.tasks.two_anchor.task import AnchorTask


def refused(path, cause, config=None):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(path, config=config)
    line = str(error.value)
    assert "\n" not in line and cause in line, line


class TestOurs:
    @pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
    def test_told_by_content(self, tmp_path, suffix):
        written = write_own(tmp_path, suffix)
        odd = written.path.rename(tmp_path / "weights.bin")
        opened = open_checkpoint(odd)
        assert opened.kind == "anchorlens" and len(opened.sha256) == 64 and opened.file == odd
        assert opened.checkpoint.task == AnchorTask() and opened.checkpoint.model_config == TINY

    def test_the_folder_of_a_run(self, tmp_path):
        (tmp_path / "config.json").write_text('{"format": "anchorlens run", "format_version": 1}')
        refused(tmp_path, "the run must have a checkpoint, got none yet")
        (tmp_path / "checkpoints").mkdir()
        checkpoint = load_checkpoint(write_own(tmp_path).path)
        (tmp_path / "ckpt.pt").unlink()
        for step in (3, 20):
            path = tmp_path / f"checkpoints/step_{step:08d}.pt"
            save_checkpoint(path, replace(checkpoint, step=step))
        opened = open_checkpoint(tmp_path)
        assert opened.checkpoint.step == 20
        assert "the run has not ended: this is its checkpoint of step 20" in opened.notes
        save_checkpoint(tmp_path / "ckpt.pt", replace(checkpoint, step=30))
        assert open_checkpoint(tmp_path).checkpoint.step == 30


class TestUnknown:
    def test_what_the_disk_refuses(self, tmp_path):
        refused(tmp_path / "no.pt", "cannot be read: No such file")
        refused(tmp_path / ("x" * 300), "cannot be read: File name too long")
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "the path must name an ordinary file")
        refused(write_own(tmp_path).path, "the path must name an ordinary file", tmp_path / "pipe")

    def test_another_model(self, tmp_path):
        torch.save({"layer.weight": torch.ones(2)}, tmp_path / "a.pt")
        refused(tmp_path / "a.pt", "those of no model that can be read")

    def test_a_folder_of_something_else(self, tmp_path):
        refused(tmp_path, "config.json was not found in this folder")
        (tmp_path / "config.json").write_text('{"x": 1}')
        refused(tmp_path, "config.json must belong to a run or model that can be read")
