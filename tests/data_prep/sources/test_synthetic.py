import numpy as np

from data_prep.sources import synthetic
from data_prep.sources.dataset import Images


def test_the_same_seed_draws_the_same_pictures_and_another_others():
    first, again, other = (synthetic.load(100, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.train.pixels, again.train.pixels)
    assert not np.array_equal(first.train.pixels, other.train.pixels)
    assert synthetic.fingerprint(100, 1) != synthetic.fingerprint(100, 2)


def test_the_classes_are_balanced_and_do_not_have_cifar10_names():
    dataset = synthetic.load(1_000, 0)
    assert np.bincount(dataset.train.labels).tolist() == [100] * 10
    assert np.bincount(dataset.eval.labels).tolist() == [20] * 10
    assert "airplane" not in dataset.class_names
    assert dataset.kind == "synthetic"


def test_no_eval_picture_is_a_training_picture():
    dataset = synthetic.load(1_000, 0)
    train = {row.tobytes() for row in dataset.train.pixels}
    assert len(train) == 1_000
    assert not any(row.tobytes() in train for row in dataset.eval.pixels)


def test_a_linear_model_learns_something_but_not_all():
    dataset = synthetic.load(4_000, 0)

    def features(images: Images) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        # 8x8 cells of each channel keep the fit quick.
        cells = images.pixels.reshape(-1, 3, 8, 4, 8, 4).mean(axis=(3, 5)).reshape(-1, 192) / 255
        return np.concatenate([cells, np.ones((len(cells), 1))], axis=1)

    x, y = features(dataset.train), np.eye(10)[dataset.train.labels]
    weights = np.linalg.solve(x.T @ x + 0.1 * np.eye(193), x.T @ y)
    predicted = (features(dataset.eval) @ weights).argmax(axis=1)
    accuracy = float((predicted == dataset.eval.labels).mean())
    assert 0.2 < accuracy < 0.7
