package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Kinds and outcomes of operations, as they are spelt in a history.
const (
	get       = "get"
	put       = "put"
	deletion  = "delete"
	answered  = "answered"
	unknown   = "unknown"
	failed    = "failed"
	mostBytes = 1 << 20 // of one line
)

// Seen is an entry as a read found it.
type Seen struct {
	Version int64  `json:"version"`
	Value   string `json:"value"`
}

// Operation is one line of a history. Values are digests; a version is -1 where there is none. Times are nanoseconds of one
// clock; the answer's is absent where there was none. Of a write without an answer it is unknown whether and when it takes
// effect, but not before its call; one that failed never does.
type Operation struct {
	Client    int    `json:"client"`
	Key       string `json:"key"`
	Kind      string `json:"kind"`
	Value     string `json:"value,omitempty"`
	IfAbsent  bool   `json:"if_absent,omitempty"`
	IfVersion *int64 `json:"if_version,omitempty"`
	IfValue   string `json:"if_value,omitempty"`
	Call      int64  `json:"call"`
	Return    *int64 `json:"return,omitempty"`
	Outcome   string `json:"outcome"`
	Applied   bool   `json:"applied,omitempty"`
	Version   *int64 `json:"version,omitempty"`
	Current   *int64 `json:"current,omitempty"`
	Found     *Seen  `json:"found,omitempty"`
}

func (o *Operation) writes() bool { return o.Kind != get }

func (o *Operation) conditional() bool { return o.IfAbsent || o.IfVersion != nil || o.IfValue != "" }

func (o *Operation) sound() error {
	switch {
	case o.Kind != get && o.Kind != put && o.Kind != deletion:
		return fmt.Errorf("kind %q is none of get, put, delete", o.Kind)
	case o.Outcome != answered && o.Outcome != unknown && o.Outcome != failed:
		return fmt.Errorf("outcome %q is none of answered, unknown, failed", o.Outcome)
	case o.Kind == put && o.Value == "":
		return fmt.Errorf("a put without the digest of its value")
	case o.Outcome == answered && o.Return == nil:
		return fmt.Errorf("an answer without its time")
	case o.Outcome == answered && *o.Return < o.Call:
		return fmt.Errorf("an answer at %d, before its call at %d", *o.Return, o.Call)
	case o.Outcome == answered && o.writes() && (o.Version == nil || *o.Version < 0):
		return fmt.Errorf("a write that was answered, without a version")
	case o.Outcome == answered && o.Applied && o.Current != nil:
		return fmt.Errorf("a write that took effect, with what stood in its way")
	}
	return nil
}

// readHistory reads lines of operations, by key; in each key they are as they came.
func readHistory(source io.Reader) (map[string][]*Operation, int, error) {
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, mostBytes)
	keys, count := map[string][]*Operation{}, 0
	for lines.Scan() {
		operation := &Operation{}
		if err := json.Unmarshal(lines.Bytes(), operation); err != nil {
			return nil, count, fmt.Errorf("line %d: %w", count+1, err)
		}
		if err := operation.sound(); err != nil {
			return nil, count, fmt.Errorf("line %d: %w", count+1, err)
		}
		count++
		keys[operation.Key] = append(keys[operation.Key], operation)
	}
	return keys, count, lines.Err()
}
