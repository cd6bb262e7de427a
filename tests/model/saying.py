"""The writer's word (``beat/``) beside a bucket that loses its newest commits: no log is taken for a shorter one, and no word
of a history that is gone stops anybody. One writer at a time; the broker has every byte."""

from explore import Violation

NUMBERS = 4


class Saying:
    """A state is (0, bucket, fold, word, 0, said, faults, mode).

    ``bucket``: a commit's name or nothing, by number; a name is (number, epoch, incarnation, the name before it). ``word``:
    epoch, number and opening commit of the newest beat. ``said``: the commit of this history that it was put
    behind.
    Rules: ``hear``: readers ask for the word; ``opening``: and only believe it of its own opening of the epoch; ``remove``: who
    archives again what was lost removes words of the epochs from its own on.
    """

    solo = False

    def __init__(self, losses=3, starts=3, **rules):
        self.losses, self.starts = losses, starts
        self.r = {"hear": True, "opening": True, "remove": True, **rules}

    def init(self):
        first = (0, 1, 0, None)
        return (0, (first, *(None,) * (NUMBERS - 1)), first, None, 0, None, (self.losses, self.starts), "run")

    @staticmethod
    def opening(name):
        while name[3] is not None and name[3][1] == name[1]:
            name = name[3]
        return name

    def alarm(self, bucket, word):
        """What a reader says: commits are missing behind the last that it finds."""
        end = next((n for n in range(NUMBERS) if bucket[n] is None), NUMBERS) - 1
        if not self.r["hear"] or word is None or word[1] <= end:
            return False
        if end < 0 or bucket[end][1] != word[0]:
            return end < 0 or bucket[end][1] < word[0]
        return not self.r["opening"] or self.opening(bucket[end]) == word[2]

    def check(self, s):
        _, bucket, fold, word, _, said, _, mode = s
        alarm = self.alarm(bucket, word)
        if said is not None and bucket[said[0]] != said and not alarm:
            raise Violation(f"W1 commit {said[0]} is lost, and nobody says so")
        if mode == "run" and alarm and bucket[fold[0]] == fold:
            raise Violation("W2 a whole log is told to lack commits")
        return s

    def succ(self, s):
        _, bucket, fold, word, _, said, (losses, starts), mode = s

        def state(bucket=bucket, fold=fold, word=word, said=said, faults=(losses, starts), mode=mode):
            return self.check((0, bucket, fold, word, 0, said, faults, mode))

        def with_commit(name):
            return (*bucket[: name[0]], name, *bucket[name[0] + 1 :])

        newest = max((n for n in range(NUMBERS) if bucket[n] is not None), default=-1)
        if mode == "run":
            name = (fold[0] + 1, fold[1], starts, fold)
            if name[0] < NUMBERS and bucket[fold[0]] == fold:
                yield f"put {name[0]}", lambda: state(bucket=with_commit(name), fold=name)
            if bucket[fold[0]] == fold:
                beat = (fold[1], fold[0], self.opening(fold))
                yield f"beat behind {fold[0]}", lambda: state(word=beat, said=fold)
            yield "end", lambda: state(mode="down")
        if mode == "down" and losses and newest > 0:
            rest = (*bucket[:newest], *(None,) * (NUMBERS - newest))
            yield f"commit {newest} is lost", lambda: state(bucket=rest, faults=(losses - 1, starts))
        if mode == "down" and starts and newest + 1 < NUMBERS:
            before = bucket[newest]
            claim = (newest + 1, before[1] + 1, starts, before)
            lost = self.alarm(bucket, word)
            kept = word
            if lost and self.r["remove"] and word[0] >= claim[1]:
                kept = None
            yield (
                f"start at {claim[0]}, epoch {claim[1]}",
                lambda: state(
                    bucket=with_commit(claim), fold=claim, word=kept, said=None,
                    faults=(losses, starts - 1), mode="run",
                ),
            )  # fmt: skip

    def goal(self, s):
        """Not asked."""
        return True


S = {
    "said": ("", lambda: Saying()),
    "said-deaf": ("W1", lambda: Saying(hear=False)),
    "said-epoch": ("W2", lambda: Saying(opening=False, remove=False)),
    "said-kept": ("W2", lambda: Saying(remove=False)),
}
SHORT = tuple(S)
