"""The only imports of private modules: the C parts of `socket` and `signal`, with the names of the public modules.

The public ones make enumerations of all constants. That would add 3 ms (`socket`) and 2 ms (`signal`) to the 60 ms of
CPU time of a run with one step, which may take as long as six bare interpreters of 11 ms; and the launcher, which loads
neither `enum` nor `selectors`, would start 10 ms later.
"""

import _signal as signal
import _socket as socket

__all__ = ("signal", "socket")
