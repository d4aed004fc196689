"""The same job for spark-submit, with the arguments of `viewsweep run`.

spark-submit $(python -m infra.sparksettings) streaming/submit.py --config warehouse.toml
"""

import sys

from cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "run")
    main()
