"""The commands of the command line, thin: each reads its arguments, calls one part of xformc, and prints.

The compiler and the trainer are imported inside the commands, so that the bare install, the runtime, works.
"""
