// kvcheck says of histories of the key-value view whether each key's is linearizable: of each file one line of JSON. It ends
// with 0 if all are, 1 if one is not, 2 if the time was too short to tell, 3 if a file is no history.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	shown     = 16              // operations of a counter-example
	shrinking = 5 * time.Second // most time to find a short one
)

// Verdict is what is printed of one history.
type Verdict struct {
	File           string       `json:"file"`
	Verdict        string       `json:"verdict"`
	Keys           int          `json:"keys"`
	Operations     int          `json:"operations"`
	Unanswered     int          `json:"unanswered"`
	Key            string       `json:"key,omitempty"`
	CounterExample []*Operation `json:"counter_example,omitempty"`
}

func main() {
	seconds := flag.Float64("seconds", 60, "most time for one history")
	flag.Parse()
	worst := 0
	for _, path := range flag.Args() {
		verdict, code, err := checkFile(path, time.Duration(*seconds*float64(time.Second)))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(3)
		}
		line, err := json.Marshal(verdict)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
		worst = max(worst, code)
	}
	os.Exit(worst)
}

func checkFile(path string, limit time.Duration) (*Verdict, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	keys, count, err := readHistory(file)
	if err != nil {
		return nil, 0, err
	}
	verdict := &Verdict{File: path, Verdict: "linearizable", Keys: len(keys), Operations: count}
	names := make([]string, 0, len(keys))
	for name, operations := range keys {
		names = append(names, name)
		for _, o := range operations {
			if o.Outcome == unknown && o.writes() {
				verdict.Unanswered++
			}
		}
	}
	sort.Strings(names)
	until, code := time.Now().Add(limit), 0
	for _, name := range names {
		switch check(keys[name], until) {
		case porcupine.Illegal:
			verdict.Verdict, verdict.Key = "not linearizable", name
			verdict.CounterExample = counterExample(keys[name], time.Now().Add(min(limit, shrinking)))
			return verdict, 1, nil
		case porcupine.Unknown:
			verdict.Verdict, verdict.Key, code = "unknown", name, 2
		}
	}
	return verdict, code, nil
}

// check tries without the writes that nobody saw first: if that is linearizable, they never took effect, and all is said.
func check(operations []*Operation, until time.Time) porcupine.CheckResult {
	few, all := prepared(operations, true), prepared(operations, false)
	if result := checkUntil(few, until); result == porcupine.Ok || len(few) == len(all) {
		return result
	}
	return checkUntil(all, until)
}

func checkUntil(operations []porcupine.Operation, until time.Time) porcupine.CheckResult {
	left := time.Until(until)
	if left <= 0 {
		return porcupine.Unknown
	}
	return porcupine.CheckOperationsTimeout(model, operations, left)
}

// counterExample is the end of the shortest beginning of a history that is not linearizable, without reads that are not needed.
func counterExample(operations []*Operation, until time.Time) []*Operation {
	illegal := func(some []*Operation) bool { return check(some, until) == porcupine.Illegal }
	var ends []int64
	for _, o := range operations {
		if o.Outcome == answered {
			ends = append(ends, *o.Return)
		}
	}
	sort.Slice(ends, func(a, b int) bool { return ends[a] < ends[b] })
	at := sort.Search(len(ends), func(i int) bool { return illegal(beginning(operations, ends[i])) })
	if at == len(ends) {
		return nil
	}
	some := beginning(operations, ends[at])
	for i := len(some) - 1; i >= 0; i-- {
		without := append(append([]*Operation{}, some[:i]...), some[i+1:]...)
		if !some[i].writes() && illegal(without) {
			some = without
		}
	}
	sort.SliceStable(some, func(a, b int) bool { return endOf(some[a]) < endOf(some[b]) })
	return some[max(0, len(some)-shown):]
}

// beginning is a history as it was at a time: who had no answer then has none.
func beginning(operations []*Operation, at int64) []*Operation {
	var some []*Operation
	for _, o := range operations {
		switch {
		case o.Call > at || o.Outcome == failed:
		case o.Outcome == answered && *o.Return > at:
			if o.writes() {
				open := *o
				open.Outcome, open.Return, open.Version, open.Current, open.Applied = unknown, nil, nil, nil, false
				some = append(some, &open)
			}
		case o.Outcome == answered || o.writes():
			some = append(some, o)
		}
	}
	return some
}

func endOf(o *Operation) int64 {
	if o.Outcome == answered {
		return *o.Return
	}
	return o.Call
}
