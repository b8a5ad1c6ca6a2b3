"""`python -m comity`: the command line."""

from comity.cli import main

raise SystemExit(main())
