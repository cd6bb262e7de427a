package main

import (
	"hash/maphash"
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

// What a state's version is while the entry is of a write without an answer that nobody has read yet.
const anyVersion = -2

// register is what one key holds. highest: no version handed out so far is above it, and each later one must be. settled: how
// many of the answered writes, in the order of their versions, are behind us.
type register struct {
	present bool
	version int64
	value   string
	highest int64
	settled int
}

// step is an operation as the model takes it; rank: its place among the answered writes of its key, by version.
type step struct {
	*Operation
	rank int
}

var seed = maphash.MakeSeed()

var model = porcupine.Model{
	Init: func() interface{} { return register{version: -1, highest: -1} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		return take(state.(register), input.(step))
	},
	Hash: func(state interface{}) uint64 { return maphash.Comparable(seed, state.(register)) },
}

func take(now register, operation step) (bool, interface{}) {
	switch {
	case operation.Kind == get:
		return read(now, operation.Found)
	case operation.Outcome == unknown:
		return true, guess(now, operation)
	case operation.rank != now.settled:
		return false, now // versions are the order in which writes took their turn: another needs no trying
	case operation.Applied:
		return applied(now, operation)
	}
	return declined(now, operation)
}

// read: what was found must be what there is. A read is the first to say the version of a write without an answer.
func read(now register, found *Seen) (bool, interface{}) {
	if found == nil {
		return !now.present, now
	}
	if !now.present || now.value != found.Value {
		return false, now
	}
	return now.is(found.Version)
}

// is: whether the entry has this version, and the state in which that is known.
func (now register) is(version int64) (bool, register) {
	if now.version == anyVersion && version >= now.highest {
		now.version, now.highest = version, version
	}
	return now.version == version, now
}

// holds: whether a write's condition holds, and the state in which that is known. A write by version meets that of a write
// without an answer if it can be that.
func (now register) holds(operation step) (bool, register) {
	if operation.IfAbsent && now.present {
		return false, now
	}
	if operation.IfValue != "" && (!now.present || now.value != operation.IfValue) {
		return false, now
	}
	if operation.IfVersion == nil {
		return true, now
	}
	if !now.present {
		return false, now
	}
	return now.is(*operation.IfVersion)
}

func applied(now register, operation step) (bool, interface{}) {
	holds, known := now.holds(operation)
	if !holds || *operation.Version <= known.highest {
		return false, now
	}
	return true, known.after(operation, *operation.Version, 1)
}

// declined: the condition must not hold, and what is said to have stood there must be what stood there.
func declined(now register, operation step) (bool, interface{}) {
	if now.present != (operation.Current != nil) {
		return false, now
	}
	known, same := now, true
	if now.present {
		same, known = now.is(*operation.Current)
	}
	if holds, _ := known.holds(operation); holds || !same || *operation.Version <= known.highest {
		return false, now
	}
	known.highest = *operation.Version
	known.settled++
	return true, known
}

// guess: a write without an answer takes effect if it can. That it never does is the same as at the very end.
func guess(now register, operation step) register {
	holds, known := now.holds(operation)
	if !holds {
		return now
	}
	next := known.after(operation, anyVersion, 0)
	next.highest = known.highest + 1 // at least
	return next
}

func (now register) after(operation step, version int64, settles int) register {
	next := register{version: -1, highest: version, settled: now.settled + settles}
	if operation.Kind == put {
		next.present, next.version, next.value = true, version, operation.Value
	}
	return next
}

// prepared makes of one key's operations what porcupine checks: without those that say nothing, and with what is known of
// writes without an answer. “spare“: without those of them that nobody is known to have seen; if the rest is linearizable,
// so is the whole.
func prepared(operations []*Operation, spare bool) []porcupine.Operation {
	kept := settle(operations)
	ranks := ranked(kept)
	var made []porcupine.Operation
	for _, operation := range kept {
		end := int64(math.MaxInt64)
		if operation.Outcome == answered {
			end = *operation.Return
		} else if spare {
			continue
		}
		made = append(made, porcupine.Operation{
			ClientId: operation.Client,
			Input:    step{operation, ranks[operation]},
			Call:     operation.Call,
			Return:   end,
		})
	}
	return made
}

// settle leaves out what failed, reads without an answer, and puts without an answer that cannot have been noticed; a put
// whose value was read, and is nobody else's, took effect before the first such read was answered, with the version that was read.
func settle(operations []*Operation) []*Operation {
	writers, readers, noticed := map[string]int{}, map[string]*Operation{}, map[string]bool{}
	known, strange := map[int64]bool{}, false
	for _, o := range operations {
		if o.Kind == put && o.Outcome != failed {
			writers[o.Value]++
		}
		if o.Outcome == answered && o.writes() {
			known[*o.Version] = true
		}
		if o.IfValue != "" {
			noticed[o.IfValue] = true
		}
		if first := readers[found(o)]; found(o) != "" && (first == nil || *o.Return < *first.Return) {
			readers[found(o)] = o
		}
	}
	for _, o := range operations {
		if first := readers[o.Value]; o.Kind == put && o.Outcome == unknown && first != nil && writers[o.Value] == 1 {
			known[first.Found.Version] = true
		}
	}
	for _, o := range operations {
		asked := o.IfVersion
		if o.Outcome == failed || (o.Outcome == answered && !o.Applied) {
			asked = nil // it met no such version
		}
		for _, version := range []*int64{o.Current, asked} {
			strange = strange || (version != nil && !known[*version])
		}
	}
	var kept []*Operation
	for _, o := range operations {
		first := readers[o.Value]
		switch {
		case o.Outcome == answered:
			kept = append(kept, o)
		case o.Outcome == failed || !o.writes():
		case o.Kind == put && first != nil && writers[o.Value] == 1:
			kept = append(kept, seenBy(o, first))
		case o.Kind == deletion || first != nil || noticed[o.Value] || strange:
			kept = append(kept, o)
		}
	}
	return kept
}

func found(o *Operation) string {
	if o.Kind != get || o.Outcome != answered || o.Found == nil {
		return ""
	}
	return o.Found.Value
}

func seenBy(o, first *Operation) *Operation {
	sure := *o
	end := max(*first.Return, o.Call)
	version := first.Found.Version
	sure.Outcome, sure.Applied, sure.Version, sure.Return = answered, true, &version, &end
	return &sure
}

func ranked(operations []*Operation) map[*Operation]int {
	var writes []*Operation
	for _, o := range operations {
		if o.writes() && o.Outcome == answered {
			writes = append(writes, o)
		}
	}
	sort.SliceStable(writes, func(a, b int) bool { return *writes[a].Version < *writes[b].Version })
	ranks := map[*Operation]int{}
	for rank, o := range writes {
		ranks[o] = rank
	}
	return ranks
}
