"""Values and text: what people type and what they read. Below the command line, the daemon, Spark and the jobs.

Owns: the one parser of numbers, sizes, durations and times (``values.py``), of addresses (``addresses.py``) and of settings
(``settingvalues.py``), and the check for values that a command line lacks (``commandline.py``); the one form in which values
are written (``human.py``); how verbs and jobs speak, to people and to programs (``output.py``: ``people.py``, ``machine.py``,
chosen by ``speaker.py``); what stores charge
(``prices.py``, from a table in TOML). Does not own: what a flag or a setting is called, nor its bounds.

Invariant: what is shown can be typed again. Rich is imported only when somebody is spoken to.
"""
