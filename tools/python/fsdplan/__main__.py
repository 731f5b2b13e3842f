"""`python -m fsdplan`"""

import sys

from .cli import main

sys.exit(main())
