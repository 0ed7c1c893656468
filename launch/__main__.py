"""Entry point of `python -m launch`."""

import sys

if __name__ == "__main__":
    try:
        from launch.verbs.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)
