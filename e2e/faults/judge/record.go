package judge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/harness-engine/harness-engine/engine/event"
)

// maxLine bounds a line of a record.
const maxLine = 4 << 20

// Record is what one worker says that one run yielded (docs/workers.md).
type Record struct {
	Run      string `json:"runId"`
	Instance string `json:"instance"`
	Session  string `json:"sessionId"`
	Events   []event.Event
	Ended    bool // the terminal was the last step
}

// ReadRecord reads a record. A last line that was cut off is left out: nobody can have got it.
func ReadRecord(in io.Reader) (Record, error) {
	r := bufio.NewReaderSize(in, 64<<10)
	var rec Record
	for n, next := 0, int64(1); ; n++ {
		line, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF): // without its end the line was cut off
			if n == 0 {
				return rec, errors.New("record has no head")
			}
			return rec, nil
		case err != nil:
			return rec, fmt.Errorf("failed to read record: %w", err)
		case len(line) > maxLine:
			return rec, fmt.Errorf("line %d of record is longer than %d bytes", n+1, maxLine)
		}
		if n == 0 {
			if err := json.Unmarshal(line, &rec); err != nil {
				return rec, fmt.Errorf("failed to read head of record: %w", err)
			}
			continue
		}
		var step struct {
			Seq       int64             `json:"seq"`
			Events    []json.RawMessage `json:"events"`
			End       bool              `json:"end"`
			Truncated bool              `json:"truncated"`
		}
		if err := json.Unmarshal(bytes.TrimSpace(line), &step); err != nil {
			return rec, fmt.Errorf("failed to read line %d of record: %w", n+1, err)
		}
		switch {
		case step.Truncated:
			return rec, errors.New("record is not whole")
		case step.End:
			rec.Ended = true
			continue
		case step.Seq != next:
			return rec, fmt.Errorf("step %d of record follows %d", step.Seq, next-1)
		}
		next++
		for _, raw := range step.Events {
			e, err := event.Decode(raw)
			if err != nil {
				return rec, fmt.Errorf("failed to read line %d of record: %w", n+1, err)
			}
			rec.Events = append(rec.Events, e)
		}
	}
}

// Ending is how much of a worker's record a log has.
type Ending struct {
	Unlogged int    // events of the record that the log does not have
	Admitted bool   // the terminal is the engine's own, and says so
	Code     string // of a run.error
}

// CheckRecords compares a log with what workers say that they yielded for it: everything that the log has of a worker, in
// its order and nothing else; all of it where the worker ended the run, and otherwise up to the loss that the terminal
// admits. A run is never given to two workers.
func CheckRecords(run string, log []event.Event, records []Record) (end Ending, f Findings) {
	if len(log) == 0 {
		return end, nil // CheckLog says so
	}
	started, _ := log[0].Data.(event.RunStarted)
	var rec Record
	for _, r := range records {
		if r.Instance == started.WorkerInstance && rec.Run == "" {
			rec = r
			continue
		}
		f.add(Doubled, run, "was begun by worker %s too, its log names %q", r.Instance, started.WorkerInstance)
	}
	var logged []event.Event // what is not the engine's own for certain
	for _, e := range log {
		if !e.Type().EngineOnly() {
			logged = append(logged, e)
		}
	}
	common := 0
	for common < len(logged) && common < len(rec.Events) && same(logged[common], rec.Events[common]) {
		common++
	}
	rest := logged[common:]
	end.Unlogged = len(rec.Events) - common
	if e, ok := log[len(log)-1].Data.(event.RunError); ok {
		end.Code = e.Code
	}
	if len(rest) == 0 {
		if end.Unlogged > 0 {
			f.add(Lost, run, "ends with its worker's event %d of %d", common, len(rec.Events))
		}
		return end, f
	}
	end.Admitted = true
	for i, e := range rest {
		if !engineMade(e, i == len(rest)-1) {
			where := "the worker yielded nothing more"
			if end.Unlogged > 0 {
				where = "the worker yielded " + describe(rec.Events[common])
			}
			f.add(misplaced(e, rec.Events, common), run, "has %s at %d, where %s", describe(e), e.Sequence, where)
			return end, f
		}
	}
	return end, f
}

// misplaced says what it means that the log has an event where the worker yielded another.
func misplaced(e event.Event, record []event.Event, at int) Class {
	for i, r := range record {
		if same(e, r) {
			switch {
			case i < at:
				return Doubled
			case i == at+1:
				return Lost // the one between is missing
			}
			return Reordered
		}
	}
	return Other
}

// engineMade says whether the engine may have written the event when it ended a run by itself.
func engineMade(e event.Event, last bool) bool {
	switch d := e.Data.(type) {
	case event.TextFinished, event.ReasoningFinished, event.NamespaceExited:
		return !last
	case event.ToolError:
		return !last && (d.Code == event.CodeRunEnded || d.Code == "outcome_unknown")
	case event.RunError:
		return last
	case event.RunCancelled:
		return last
	}
	return false
}

// same compares what the worker says with what the log has. The engine adds the time, a question's deadline and the thread state
// of a terminal.
func same(a, b event.Event) bool {
	x, errX := event.Encode(plain(a))
	y, errY := event.Encode(plain(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func plain(e event.Event) event.Event {
	out := event.Event{Namespace: e.Namespace, Data: e.Data}
	switch d := e.Data.(type) {
	case event.InterruptRequested:
		d.Deadline = nil
		out.Data = d
	case event.RunFinished:
		d.Thread = event.ThreadState{}
		out.Data = d
	case event.RunInterrupted:
		d.Thread = event.ThreadState{}
		out.Data = d
	case event.RunCancelled:
		d.Thread = event.ThreadState{}
		out.Data = d
	case event.RunError:
		d.Thread = event.ThreadState{}
		out.Data = d
	}
	return out
}

func describe(e event.Event) string {
	raw, err := event.Encode(plain(e))
	if err != nil {
		return string(e.Type())
	}
	if len(raw) > 160 {
		raw = append(raw[:160:160], "..."...)
	}
	return string(raw)
}

// CheckEffects looks for a tool call that was made twice: in all records of one conversation each call is answered once.
func CheckEffects(records []Record) (f Findings) {
	answered := map[string]string{}
	for _, r := range records {
		for _, e := range r.Events {
			d, ok := e.Data.(event.ToolFinished)
			if !ok {
				continue
			}
			if by, twice := answered[d.ToolCallID]; twice {
				f.add(Doubled, r.Run, "made the tool call %s, which run %s had made", d.ToolCallID, by)
			}
			answered[d.ToolCallID] = r.Run
		}
	}
	return f
}
