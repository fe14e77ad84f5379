"""`python -m xformc` is `xformc`."""

from xformc.cli import main

main()
