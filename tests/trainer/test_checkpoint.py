import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import TinyModel, copy_examples, make_adam, make_recipe, save_checkpoint

from xformc.errors import UserError
from xformc.files import writing
from xformc.trainer.checkpoint import (
    State,
    chosen_checkpoints,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    recipe_checkpoints,
    remove_leavings,
)
from xformc.trainer.loop import fit

STATE = State(step=3, epoch=1, batch=2, seconds=4.5, tokens=60, best_loss=1.25, best_step=2)


def trained(model: TinyModel | None = None) -> tuple[TinyModel, torch.optim.Optimizer]:
    model = model or TinyModel()
    optimizer = make_adam(model)
    fit(
        model,
        optimizer,
        copy_examples(),
        make_recipe(steps=3),
        State(),
        on_update=lambda state, update: None,
        on_checkpoint=lambda state: state,
    )
    return model, optimizer


def save(run: Path, *steps: int) -> list[Path]:
    model, optimizer = trained()
    return [save_checkpoint(run, replace(STATE, step=step), model, optimizer, {"who": "me"}) for step in steps]


def test_save_checkpoint_writes_weights_under_their_paths(tmp_path: Path) -> None:
    (folder,) = save(tmp_path, 3)
    assert folder == tmp_path / "checkpoints" / "00000003"
    assert load_file(folder / "weights.safetensors").keys() == {"embedding", "projection"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "optimizer.safetensors",
        "state.json",
        "weights.safetensors",
    ]


def test_a_checkpoint_replaces_one_of_a_stop_at_the_same_step(tmp_path: Path) -> None:
    """As training ends there, since it is given less time."""
    model, optimizer = trained()
    stopped = replace(STATE, steps_after=1)
    (first,) = save(tmp_path, 2)
    folder = save_checkpoint(tmp_path, stopped, model, optimizer, {})
    assert list_checkpoints(tmp_path) == [first, folder]
    assert recipe_checkpoints(tmp_path) == chosen_checkpoints(tmp_path, 2) == [first]
    prune_checkpoints(tmp_path, 1)
    assert list_checkpoints(tmp_path) == [first, folder], "the one to go on from stays"
    save_checkpoint(tmp_path, STATE, model, optimizer, {})
    assert load_checkpoint(folder, model, optimizer) == STATE
    assert recipe_checkpoints(tmp_path) == [first, folder]
    assert sorted(path.name for path in folder.parent.iterdir()) == [first.name, folder.name]


def test_load_checkpoint_restores_state_weights_and_optimizer(tmp_path: Path) -> None:
    (folder,) = save(tmp_path, 3)
    model, optimizer = TinyModel(), make_adam(TinyModel())
    optimizer = make_adam(model)
    assert load_checkpoint(folder, model, optimizer) == STATE
    saved, saved_optimizer = trained()
    assert torch.equal(model.embedding, saved.embedding)
    for kind in ("step", "exp_avg", "exp_avg_sq"):
        assert torch.equal(optimizer.state[model.embedding][kind], saved_optimizer.state[saved.embedding][kind])


def test_parameter_that_is_not_trained_has_weights_but_no_moments(tmp_path: Path) -> None:
    def model_with_random_weights() -> TinyModel:
        model = TinyModel()
        model.random = torch.nn.Parameter(torch.randn(3), requires_grad=False)
        return model

    model, optimizer = trained(model_with_random_weights())
    folder = save_checkpoint(tmp_path, STATE, model, optimizer, {})
    again = model_with_random_weights()
    assert load_checkpoint(folder, again, make_adam(again)) == STATE
    assert torch.equal(again.get_parameter("random"), model.get_parameter("random"))
    assert {name.partition("/")[2] for name in load_file(folder / "optimizer.safetensors")} == {
        "embedding",
        "projection",
    }


def test_parameter_without_a_gradient_is_trained_and_saved_as_it_is(tmp_path: Path) -> None:
    def model_with_a_constant_choice() -> TinyModel:
        model = TinyModel()
        model.choice = torch.nn.Parameter(torch.ones(3))
        return model

    model, optimizer = trained(model_with_a_constant_choice())
    folder = save_checkpoint(tmp_path, STATE, model, optimizer, {})
    again = model_with_a_constant_choice()
    assert load_checkpoint(folder, again, make_adam(again)) == STATE
    assert torch.equal(model.get_parameter("choice"), torch.ones(3))


def test_load_checkpoint_refuses_another_model(tmp_path: Path) -> None:
    (folder,) = save(tmp_path, 3)
    model = TinyModel()
    model.extra = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(UserError, match="the parameters do not fit this spec"):
        load_checkpoint(folder, model, make_adam(model))
    model = TinyModel()
    model.embedding = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(UserError, match="the parameters do not fit this spec"):
        load_checkpoint(folder, model, make_adam(model))


def test_load_checkpoint_names_a_broken_file(tmp_path: Path) -> None:
    (folder,) = save(tmp_path, 3)
    (folder / "weights.safetensors").write_bytes(b"\xff" * 100)
    model = TinyModel()
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_checkpoint(folder, model, make_adam(model))
    assert caught.value.place == str(folder / "weights.safetensors")


def test_newest_checkpoint_passes_over_damaged_ones(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    first, second, third, fourth = save(tmp_path, 1, 2, 3, 4)
    (fourth / "state.json").write_text("{")
    (third / "optimizer.safetensors").unlink()
    with (second / "weights.safetensors").open("ab") as file:
        file.truncate(100)
    assert newest_checkpoint(tmp_path) == first


@pytest.mark.parametrize("content", ["[]", "null", '{"bytes": {}}', '{"bytes": [1]}', "[" * 100_000])
def test_newest_checkpoint_passes_over_a_state_that_is_none(tmp_path: Path, content: str) -> None:
    first, second = save(tmp_path, 1, 2)
    (second / "state.json").write_text(content)
    assert newest_checkpoint(tmp_path) == first


def test_prune_checkpoints_keeps_the_newest(tmp_path: Path) -> None:
    save(tmp_path, *range(1, 7))
    prune_checkpoints(tmp_path, keep=3)
    assert [folder.name for folder in list_checkpoints(tmp_path)] == ["00000004", "00000005", "00000006"]
    kept = [(folder / "optimizer.safetensors").exists() for folder in list_checkpoints(tmp_path)]
    assert kept == [False, True, True]


def test_remove_leavings_removes_what_cannot_be_continued(tmp_path: Path) -> None:
    _, _, third = save(tmp_path, 1, 2, 3)
    (third / "state.json").unlink()
    (tmp_path / ".weights.safetensors.12345678.partial").write_text("half")
    (tmp_path / "checkpoints" / ".00000004.12345678.partial").mkdir()
    remove_leavings(tmp_path)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["00000001", "00000002"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_remove_leavings_does_not_remove_every_checkpoint(tmp_path: Path) -> None:
    folders = save(tmp_path, 1, 2)
    for folder in folders:
        (folder / "optimizer.safetensors").unlink()
    with pytest.raises(UserError, match="all 2 checkpoints are damaged"):
        remove_leavings(tmp_path)
    assert list_checkpoints(tmp_path) == folders


def test_save_checkpoint_leaves_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    model, optimizer = trained()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UserError, match="cannot be written"):
            save_checkpoint(tmp_path, STATE, model, optimizer, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_writing_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written: No such file") as caught, writing(tmp_path / "a"):
        (tmp_path / "absent" / "a").write_text("x")
    assert caught.value.place == str(tmp_path / "a")


def test_state_json_is_readable(tmp_path: Path) -> None:
    (folder,) = save(tmp_path, 3)
    content = json.loads((folder / "state.json").read_text())
    assert content["step"] == 3
    assert content["bytes"]["weights.safetensors"] == os.path.getsize(folder / "weights.safetensors")
