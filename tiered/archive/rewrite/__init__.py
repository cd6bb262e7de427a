"""What changes an archive without adding a message.

Owns: merging (level 0 to 1): which runs are worth it (``plan``, pure), reading them out of their objects with every check
that a reader makes (``sources``), writing them as one object sorted by queue (``writing``), the ``ReplaceRuns`` that puts it
in their place where they are unchanged when its turn in the line comes (``swap``), and the task of these (``merge``); sealing
(to level 2): which days of which topics (``sealplan``, pure), files made of their runs without log or fold (``sealing``,
which needs pyarrow, and ``spool``, where a file lies until it is put), the objects of a day for whoever puts them
(``sealedday``), and the task (``seal``); the same done elsewhere (``propose``), what it leaves (``proposal``), and the task
that settles it (``proposals``); what retention takes (``policy``, ``retain``, ``retention``), legal holds (``holds``), ages
by the store's clock (``storetime``); what may be deleted (``collect``), and the task that names it, waits and deletes it
(``collection``).
Does not own: what an edit does to the state (``fold``), in which order commits become real (``log``), when all of this runs
(``daemon``).

Invariant: a plan is a pure function of a fold, so a dry run and a run are the same; records are copied whole and in order;
nothing in here decides that a broker lost its tail.

Threads: one at a time runs a task, the line's pool settles what a task offered. While a file is made, one thread reads ahead
of it (``sealing``), one puts it (``seal``), four ask the store (``sources``), and one more for each of ``gc.delete_threads``
deletes (``collection``).
"""
