"""The SavedModel: what it answers, and that it is whole or not there."""

import io
import os
import pathlib
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, UserError
from cifar10.output import model_settings
from cifar10.run.job import make_job
from cifar10.run.modes import export
from cifar10.schema import CLASS_NAMES
from tests.cifar10.saved import save_untrained
from tests.failing_disk import every_rename_is_synced, failures_of


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> dict:
    """What a client gets from an exported model; tests/outside has clients without our code."""
    folder = tmp_path_factory.mktemp("export")
    config = TrainConfig(model="mlp", output_dir=str(folder / "output"), num_towers=2)
    checkpoint = save_untrained(config)
    exported = export.export(make_job(config), checkpoint)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    Image.fromarray(pixels).save(folder / "image.jpg", quality=75)
    np.save(folder / "pillow.npy", np.asarray(Image.open(folder / "image.jpg")))
    model = tf2.saved_model.load(exported)
    raw_images, encoded = model.signatures["serving_default"], model.signatures["encoded"]
    png, jpeg = ((folder / name).read_bytes() for name in ("image.png", "image.jpg"))
    raw = raw_images(images=tf.constant(pixels[None]))
    of_pillow = raw_images(images=tf.constant(np.load(folder / "pillow.npy")[None]))
    return {
        "signatures": sorted(model.signatures),
        "classes": [name.decode() for name in raw["classes"].numpy()],
        "ids": raw["class_ids"].numpy().tolist(),
        "raw": raw["probabilities"].numpy().tolist(),
        "decoded": encoded(bytes=tf.constant([png, png]))["probabilities"].numpy().tolist(),
        "of_jpeg": encoded(bytes=tf.constant([jpeg]))["probabilities"].numpy().tolist(),
        "of_pillow": of_pillow["probabilities"].numpy().tolist(),
        "exported": pathlib.Path(exported),
    }


def test_a_client_finds_both_signatures(answer):
    assert answer["signatures"] == ["encoded", "serving_default"]


def test_raw_images_and_png_bytes_give_the_same_probabilities(answer):
    np.testing.assert_allclose(answer["decoded"], answer["raw"] * 2, rtol=1e-5)
    np.testing.assert_allclose(np.sum(answer["raw"], axis=1), [1.0], rtol=1e-5)


def test_a_jpeg_is_what_pillow_makes_of_it(answer):
    assert answer["of_jpeg"] == answer["of_pillow"]
    assert answer["of_jpeg"] != answer["raw"]


def test_classes_are_names(answer):
    assert answer["ids"] == np.argmax(answer["raw"], axis=1).tolist()
    assert answer["classes"] == [CLASS_NAMES[answer["ids"][0]]]


def test_an_export_is_bound_to_no_device(answer):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], str(answer["exported"]))
        operations = session.graph.get_operations()
    assert {op.device for op in operations if op.type in ("MatMul", "VarHandleOp")} == {""}
    assert not [op.name for op in operations if "tower_1/" in op.name]


def test_an_export_has_no_ops_of_our_library(tmp_path, compiled_kernels):
    config = TrainConfig(num_layers=8, kernels="own", output_dir=str(tmp_path), num_gpus=0)
    assert make_job(config).plan.own_kernels
    exported = export.export(make_job(config), save_untrained(config))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], exported)
        types = [op.type for op in session.graph.get_operations()]
    assert types.count("Conv2D") == 2 * 7  # for each of the two signatures
    assert [one for one in types if one.startswith("Cifar10")] == []


def test_an_export_appears_whole_under_a_number(answer):
    assert [path.name for path in answer["exported"].parent.iterdir()] == [answer["exported"].name]
    assert answer["exported"].name.isdigit()


def test_an_export_has_a_higher_number_than_any_before_even_if_the_clock_went_back(
    tmp_path, monkeypatch
):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint, numbers = save_untrained(config), []
    for seconds in (1795448234.9, 1795444634.0):
        monkeypatch.setattr(time, "time", lambda now=seconds: now)
        numbers.append(pathlib.Path(export.export(make_job(config), checkpoint)).name)
        (tmp_path / "output/export/2000000000.older").mkdir(exist_ok=True)
    assert numbers == ["1795448234", "1795448235"]


def test_an_export_resizes_images_as_those_of_training_were(tmp_path):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    model_settings.write(config, CLASS_NAMES, resize="crop")
    model = tf2.saved_model.load(export.export(make_job(config), checkpoint))
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    wide = Image.new("RGB", (96, 32), "white")
    wide.paste(Image.fromarray(pixels), (32, 0))
    files = []
    for kind in ("PNG", "BMP"):
        file = io.BytesIO()
        wide.save(file, kind)
        files.append(file.getvalue())
    expected = model.signatures["serving_default"](images=tf.constant(pixels[None]))
    found = model.signatures["encoded"](bytes=tf.constant(files))
    for row in found["probabilities"].numpy():
        np.testing.assert_allclose(row, expected["probabilities"].numpy()[0], rtol=1e-4)


def test_whatever_fails_an_export_is_whole_or_not_there(tmp_path):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    job, parent, failed = make_job(config), tmp_path / "output" / "export", 0
    for _ in failures_of(lambda: export.export(job, checkpoint)):
        failed += 1
        for folder in parent.glob("[0-9]*"):
            with tf.Graph().as_default(), tf.Session() as session:
                tf.saved_model.load(session, ["serve"], str(folder))
    assert failed >= 4  # sync of files and folders, rename, sync
    assert len(list(parent.glob("[0-9]*"))) >= 1
    assert list(parent.glob(".part*")) == []


def test_a_number_that_another_export_has_just_taken_is_left_to_it(tmp_path, monkeypatch):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint, rename = save_untrained(config), tf.io.gfile.rename

    def overtaken(source, target):
        monkeypatch.setattr(tf.io.gfile, "rename", rename)
        (pathlib.Path(target) / "variables").mkdir(parents=True)
        rename(source, target)

    monkeypatch.setattr(tf.io.gfile, "rename", overtaken)
    exported = export.export(make_job(config), checkpoint)
    first, second = sorted((tmp_path / "output/export").iterdir())
    assert (int(second.name), str(second)) == (int(first.name) + 1, exported)


def test_the_folder_of_an_export_that_was_killed_is_removed_but_not_of_one_that_runs(tmp_path):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    folder = tmp_path / "output/export"
    for name, seconds in ((".part", 4000), (".part-old", 4000), (".part-new", 600)):
        (folder / name / "variables").mkdir(parents=True)
        changed = time.time() - seconds
        os.utime(folder / name, (changed, changed))
    exported = pathlib.Path(export.export(make_job(config), checkpoint))
    assert sorted(folder.iterdir()) == [folder / ".part-new", exported]


def test_an_export_whose_files_were_removed_does_not_appear(tmp_path, monkeypatch):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    save = tf.saved_model.Builder.save

    def robbed(builder):
        (variables,) = (tmp_path / "output/export").glob(".part-*/variables")
        shutil.rmtree(variables)
        return save(builder)

    monkeypatch.setattr(tf.saved_model.Builder, "save", robbed)
    with pytest.raises(UserError, match=r"has removed files of .*/export/\.part-.*; export again"):
        export.export(make_job(config), checkpoint)
    assert list((tmp_path / "output/export").iterdir()) == []


def test_an_export_that_cannot_be_written_does_not_begin(tmp_path, monkeypatch):
    config = TrainConfig(mode="export", model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    (tmp_path / "output" / "export").write_text("a file")
    monkeypatch.setattr(export, "start_job", make_job)
    with pytest.raises(ConfigError) as refusal:
        export.export_mode(config)
    message = str(refusal.value)
    assert message.startswith(
        f"the folder for exports {tmp_path}/output/export cannot be written to: "
    )
    assert message.endswith(
        f"; name another --output-dir, and the model by --checkpoint {checkpoint}"
    )


def test_an_export_is_on_disk_before_it_is_named(tmp_path):
    config = TrainConfig(model="mlp", output_dir=str(tmp_path / "output"))
    checkpoint = save_untrained(config)
    with every_rename_is_synced() as renamed:
        exported = export.export(make_job(config), checkpoint)
    assert exported in renamed
