"""The random words of the input are those of SplitMix64."""

import numpy as np

from cifar10.input.random_words import words


def test_words_are_those_that_splitmix64_gives_from_0():
    # The published generator steps before it mixes, so that its first word is number 1.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert words(np.arange(1, 5, dtype=np.uint64)).numpy().tolist() == published


def test_a_word_depends_on_its_number_alone():
    numbers = np.array([[7, 2**63], [2**64 - 1, 7]], np.uint64)
    together = words(numbers).numpy()
    assert together[0, 0] == together[1, 1] == words(numbers[0, 0]).numpy()
    assert len(set(together.ravel().tolist())) == 3
