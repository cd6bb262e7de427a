"""Looking after damage: what lies in the bucket, compared with the fold, again and again, for as long as the archive lives.

Owns: the walk over the bucket in the order of its keys (``walk``, ``loose``), what is known of it between two walks (``notes``,
kept in the state directory), the task of these (``scrub``), one walk for a verb (``look``), what others leave alone because it
is damaged (``quarantine``), and the task that mends (``mend``): from a copy, from the broker's log (``commitlog``), from what
objects were made of (``rebuild``).
Does not own: what is wrong with an object's bytes (``read/content``), when a turn comes (``daemon``), damaged commits
(``repair``).

Invariant: looking changes nothing in the bucket and needs no epoch, mending writes over nothing; what was found stays listed
until a later look finds it sound or no longer needed.

Threads: none of its own; notes are read by any thread as what was said last.
"""
