// Package judge compares what an engine kept with what everybody else saw: the worker's own record, each client's view,
// the answers that clients got. It knows nothing of faults, processes or networks, so that it can be proven itself:
// doctored evidence has to be found out.
package judge

import (
	"fmt"
	"slices"
)

// Class says which promise a finding breaks.
type Class string

// Classes of findings.
const (
	Lost      Class = "lost"           // what was yielded, acknowledged or shown is not there
	Doubled   Class = "doubled"        // something is there, was shown or was done twice
	Reordered Class = "reordered"      // something came in another order than the log's
	Stale     Class = "stale accepted" // an engine wrote that had lost the run
	Other     Class = "other"          // any other thing that should not be
)

// Finding is one broken promise.
type Finding struct {
	Class Class  `json:"class"`
	Run   string `json:"run,omitempty"`
	Text  string `json:"text"`
}

// String is the finding in one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s %s", f.Class, f.Run, f.Text) }

// Findings is what was found in a piece of evidence.
type Findings []Finding

func (f *Findings) add(class Class, run, format string, args ...any) {
	*f = append(*f, Finding{Class: class, Run: run, Text: fmt.Sprintf(format, args...)})
}

// Count is how many findings are of the class.
func (f Findings) Count(class Class) int {
	n := 0
	for _, x := range f {
		if x.Class == class {
			n++
		}
	}
	return n
}

// Has reports whether a finding of the class is there.
func (f Findings) Has(class Class) bool { return f.Count(class) > 0 }

// Seen is one event as a client got it: its sequence and a digest of everything that came with it.
type Seen struct {
	Sequence int64
	Print    uint64
}

// View is what one client saw of one run, over all its connections, in the order of arrival. It began at the log's
// beginning and is whole where the engine said that there is no more.
type View struct {
	Client string
	Run    string
	Events []Seen
	Whole  bool
}

// CheckView compares a view with the log as it is read in the end.
func CheckView(v View, log []Seen) (f Findings) {
	order(&f, v.Run, v.Client, v.Events, log)
	if v.Whole && len(v.Events) < len(log) && len(f) == 0 {
		f.add(Lost, v.Run, "%s was told that there is no more after event %d of %d", v.Client, len(v.Events), len(log))
	}
	return f
}

// order holds events against the beginning of the log: 1, 2, 3, ... and each as it is there.
func order(f *Findings, run, client string, events, log []Seen) {
	next := int64(1)
	for i, e := range events {
		switch {
		case e.Sequence < next && i > 0 && slices.Contains(events[:i], e):
			f.add(Doubled, run, "%s got event %d again, behind %d", client, e.Sequence, next-1)
			continue
		case e.Sequence < next:
			f.add(Reordered, run, "%s got event %d behind %d", client, e.Sequence, next-1)
			continue
		case e.Sequence > next:
			if slices.ContainsFunc(events[i+1:], func(l Seen) bool { return l.Sequence == next }) {
				f.add(Reordered, run, "%s got event %d before %d", client, e.Sequence, next)
			} else {
				f.add(Lost, run, "%s got event %d behind %d", client, e.Sequence, next-1)
			}
		}
		next = e.Sequence + 1
		switch {
		case e.Sequence > int64(len(log)):
			f.add(Lost, run, "%s was shown event %d, the log ends with %d", client, e.Sequence, len(log))
		case log[e.Sequence-1].Print != e.Print:
			f.add(Lost, run, "%s was shown another event %d than the log has", client, e.Sequence)
		}
	}
}

// SessionSeen is one event as a client of a whole conversation got it.
type SessionSeen struct {
	Ord int64
	Run string
	Seen
}

// SessionView is what one client saw of a conversation. It began at the beginning and lasted until the last run of Logs had ended.
type SessionView struct {
	Client  string
	Session string
	Events  []SessionSeen
}

// SessionRun is one run of a conversation, as it is read in the end.
type SessionRun struct {
	Ord int64
	Run string
	Log []Seen
}

// CheckSession compares a client's view of a conversation with its runs, in the order of their activation: each run whole,
// one after the other.
func CheckSession(v SessionView, runs []SessionRun) (f Findings) {
	runs = slices.SortedFunc(slices.Values(runs), func(a, b SessionRun) int { return int(a.Ord - b.Ord) })
	logs := map[string][]Seen{}
	for i, r := range runs {
		if i > 0 && r.Ord == runs[i-1].Ord {
			f.add(Doubled, r.Run, "and run %s have both the order %d in session %s", runs[i-1].Run, r.Ord, v.Session)
		}
		logs[r.Run] = r.Log
	}
	parts, last := map[string][]Seen{}, int64(0)
	for _, e := range v.Events {
		if e.Ord < last {
			f.add(Reordered, e.Run, "%s got a run of order %d behind one of order %d", v.Client, e.Ord, last)
		}
		last = max(last, e.Ord)
		parts[e.Run] = append(parts[e.Run], e.Seen)
	}
	for run, part := range parts {
		log, known := logs[run]
		if !known {
			f.add(Lost, run, "was shown to %s, session %s does not have it", v.Client, v.Session)
			continue
		}
		order(&f, run, v.Client, part, log)
	}
	for _, r := range runs {
		if len(parts[r.Run]) < len(r.Log) && len(f) == 0 {
			f.add(Lost, r.Run, "%s got %d of its %d events in session %s", v.Client, len(parts[r.Run]), len(r.Log), v.Session)
		}
	}
	return f
}
