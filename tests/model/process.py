"""What a process of the model is, and the rules a scenario may switch."""

RULES = {
    # counted window, grace, commit retention, take-over wait; in ticks
    "W": 1,
    "G": 2,
    "R": 3,
    "TW": 1,
    "counted": True,  # mutation: False = every success counts
    "fence": True,  # mutation: False = a writer that meets a foreign commit applies it and goes on
    "retire": True,  # mutation: False = collector deletes what its fold does not name, by age alone
    "own_epoch_orphans": False,  # mutation: True = orphans of any epoch may be retired
    "floor_newest": False,  # mutation: True = floor may be the newest checkpoint
    "list_after_404": True,  # mutation: False = a 404 is the end
    "grace": True,  # mutation: False = delete as soon as Retire is counted
    # False = the design as first written (or its literal reading), True = the proposed wording
    "proof_to_end": True,  # a proof demands that nothing follows; False: folds from the newest checkpoint, and looks for itself
    "retry_own": True,  # an opener applies any commit it meets, own writer id included
    "removal_after_floor": True,  # removal: R after the floor moved, not after the commit's birth
    "fresh_readers": True,  # the age rule binds every reader (opener, proof, cache), by the response's Date
    "restart_on_mismatch": True,  # a broken chain = start again from the newest checkpoint, not Corrupt
    "usable_ckpt": True,  # a checkpoint that does not verify is absent; False = newest by name or nothing
}

LIST, READ, END, CLAIM, PUT, RB, RUN, FENCED, CKP, REFUSED = range(10)
PC = ["LIST", "READ", "END", "CLAIM", "PUT", "READBACK", "RUN", "FENCED", "CKPT", "REFUSED"]
OPEN, PROOF, FOLLOW = 0, 1, 2
NONE = 99
NOW = 50
# p = (pc, inc, f, last counted Date, pend, t, mode, tb, cache, flag), then what a larger model adds
PC_, INC, F_, LAST, PEND, TT, MODE, TB, CACHE, FLAG = range(10)
IDX = {"pc": 0, "inc": 1, "f": 2, "last": 3, "pend": 4, "t": 5, "mode": 6, "tb": 7, "cache": 8, "flag": 9}
CHK, LOOK, PLAN, HELD = range(10, 14)  # of rewind.py
IDX.update(chk=CHK, look=LOOK, plan=PLAN, held=HELD)


def upd(p, **k):
    """``p`` with the named fields changed."""
    fields = list(p)
    for n, v in k.items():
        fields[IDX[n]] = v
    return tuple(fields)
