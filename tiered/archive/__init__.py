"""The archive itself: its log of commits and the state that the log folds to.

Owns: object keys, identity, the log (epochs, fencing, opening, following), the fold of edits into an ordered
byte map, its checkpoints, and reading rows back. Does not own: byte layouts of commits and objects
(``codec``), where bytes lie (``provider``), where the fold is cached (``metadata``), what is archived when
(``write``).

One invariant: the state is a pure function of the commits, so any two that folded the same commits hold the
same bytes.

Threads: none of its own. The fold and every value are immutable once made; ``CommitLog`` says which of its
methods may meet.
"""
