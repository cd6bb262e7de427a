"""What a destination has, held against what the archive says that it must have.

Owns: the port by which a driver reads its destination back (``base``), what messages are compared by (``content``,
``tables``), what is to be compared (``scope``), the archive's side (``archived``), holes in queues until they are filled
(``holes``), finding differences (``comparing``) and telling them (``found``). Does not own: how a destination is read (the
drivers).
Invariant: nothing is changed on either side, and nobody is fenced. A message that was not looked at never counts as the same.
Memory: one window of marks, some numbers for each queue, a bounded number of holes.
Threads: the caller's one.
"""
