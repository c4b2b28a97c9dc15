"""`millstream broker` of another version, as far as the cluster can tell: it supports other feature levels.

python tests/support/leveled_broker.py LEVELS.json broker --set ...
"""

import json
import sys
from pathlib import Path

from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.testing._child import main

if __name__ == "__main__":
    levels = json.loads(Path(sys.argv.pop(1)).read_text())
    SUPPORTED_FEATURES.update({name: (low, high) for name, (low, high) in levels.items()})
    main()
