"""Entry point of `python -m launch.slurm_job`, which batch scripts call.

The implementation is in `launch.backends.slurm.job`. This module keeps its name so that batch
scripts saved earlier still work.
"""

import sys

from launch.backends.slurm.job import main

if __name__ == "__main__":
    sys.exit(main())
