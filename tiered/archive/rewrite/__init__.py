"""What changes an archive without adding a message.

Owns: merging (level 0 to 1): which runs are worth it (``mergeplan``, pure; ``plan``: what any job is), reading them out of
their objects with every check that a reader makes (``sources``), writing them as one object sorted by queue (``writing``),
the ``ReplaceRuns`` that puts it in their place where they are unchanged when its turn in the line comes (``swap``), and the
task of these (``merge``); sealing (to level 2): which days of which topics (``sealplan``, pure), files made of their runs
without log or fold (``sealing``, which needs pyarrow, and ``spool``, where a file lies until it is put), the objects of a day
(``sealedday``), and the task (``seal``); what retention takes (``policy``, ``retain``, ``retention``), legal holds
(``holds``), ages by the store's clock (``storetime``); what may be deleted (``collect``), the task that names it, waits and
has it deleted (``collection``), and batches of which each key has an answer of its own (``deletion``).
Does not own: what an edit does to the state (``fold``), in which order commits become real (``log``), when all of this runs
(``daemon``).

Invariant: a plan is a pure function of a fold, so a dry run and a run are the same; records are copied whole and in order;
nothing in here decides that a broker lost its tail.

Threads: one at a time runs a task, the line's pool settles what a task offered. One compresses while the next records are
opened (``writing``). While a file is made, one thread reads ahead of it and one writes a row group while the bands of the
next are opened and proven (``sealing``), one puts it (``seal``), four ask the store (``sources``), and one more for each of
``gc.delete_threads`` deletes (``deletion``).
"""
