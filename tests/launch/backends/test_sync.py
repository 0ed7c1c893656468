"""`sync: true` copies a checkout; tests/system/test_launch_ssh.py copies one over ssh."""

from pathlib import Path

import pytest

from launch.backends.ssh.sync import command, sync_code
from launch.cluster.host_list import from_hosts
from launch.errors import LaunchError


def test_an_installed_package_is_not_copied_to_hosts(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as refusal:
        sync_code(from_hosts("a").hosts, tmp_path)
    assert str(refusal.value) == (
        f"sync copies a checkout, but {tmp_path} has no cifar10_main.py; run the launcher in a "
        "checkout, or leave sync out and install the same package on the hosts"
    )


@pytest.mark.parametrize(
    ("workdir", "place"),
    [
        ("/srv/x y", "/srv/x y/"),
        ("x", "x/"),
        ("~/x/y", "x/y/"),
        ("~//x", "x/"),
        ("~/", "./"),
        ("~", "./"),
    ],
)
def test_a_folder_in_the_home_stays_in_the_home(workdir: str, place: str) -> None:
    (host,) = from_hosts("a", workdir=workdir).hosts
    assert command(host, Path("/nowhere"))[-1] == f"a:{place}"
