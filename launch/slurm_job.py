"""`python -m launch.slurm_job`: what batch scripts call; scripts that were saved go on working.

What it does is in `launch.backends.slurm.job`.
"""

import sys

from launch.backends.slurm.job import main

if __name__ == "__main__":
    sys.exit(main())
