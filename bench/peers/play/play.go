// Package play makes the events of the fan-out benchmark in the memory of a peer: what the scripted harness makes of
// the same script, with the same pauses, without a worker, a log or a disk.
package play

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Script is what a peer plays in each of some runs. A warm-up message comes first; what is measured is the second one,
// between the pauses.
type Script struct {
	Runs    []string `json:"runs"`    // at most maxRuns
	Warm    int      `json:"warm"`    // deltas of the first message
	Count   int      `json:"count"`   // deltas of the second message
	EveryMS int      `json:"everyMs"` // pause before each delta
	PauseMS int      `json:"pauseMs"` // pause before and after the second message
	Word    string   `json:"word"`    // each delta
}

const maxRuns = 1000

// Types of events, as in docs/events.md.
const (
	RunStarted   = "run.started"
	TextStarted  = "text.started"
	TextDelta    = "text.delta"
	TextFinished = "text.finished"
	RunFinished  = "run.finished"
)

// Event is one event of a run. MessageID, Role and Delta are set where the type has them.
type Event struct {
	RunID     string
	Sequence  int
	Time      time.Time
	Type      string
	MessageID string
	Role      string
	Delta     string
}

// Typename is the name of the event's type in the schema.
func (e Event) Typename() string {
	name := ""
	for part := range strings.SplitSeq(e.Type, ".") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name + "Event"
}

// Stamp is the event's time as the schema's DateTime.
func (e Event) Stamp() string { return e.Time.Format("2006-01-02T15:04:05.000Z") }

// play publishes the script's events of one run, in order.
func (s Script) play(run string, publish func(Event)) {
	sequence := 0
	emit := func(e Event) {
		sequence++
		e.RunID, e.Sequence, e.Time = run, sequence, time.Now().UTC()
		publish(e)
	}
	every, pause := time.Duration(s.EveryMS)*time.Millisecond, time.Duration(s.PauseMS)*time.Millisecond
	say := func(id string, n int) {
		emit(Event{Type: TextStarted, MessageID: id, Role: "assistant"})
		for range n {
			if every > 0 {
				time.Sleep(every)
			}
			emit(Event{Type: TextDelta, MessageID: id, Delta: s.Word})
		}
		emit(Event{Type: TextFinished, MessageID: id})
	}
	emit(Event{Type: RunStarted})
	say("msg_1", s.Warm)
	time.Sleep(pause)
	say("msg_2", s.Count)
	time.Sleep(pause)
	emit(Event{Type: RunFinished})
}

// Handler takes a script by POST, starts it and answers. The runs start one after the other within one pause between
// deltas, as those of an engine do not keep step either.
func Handler(publish func(Event)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var s Script
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&s); err != nil || len(s.Runs) > maxRuns {
			http.Error(w, "not a script", http.StatusBadRequest)
			return
		}
		var group sync.WaitGroup
		for i, run := range s.Runs {
			offset := time.Duration(s.EveryMS) * time.Millisecond * time.Duration(i) / time.Duration(len(s.Runs))
			group.Go(func() {
				time.Sleep(offset)
				s.play(run, publish)
			})
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// Announce tells where the peer listens, as the engine does.
func Announce(addr string) { fmt.Printf("listening on http://%s\n", addr) }
