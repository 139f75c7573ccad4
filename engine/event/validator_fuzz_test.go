package event

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzValidator feeds raw driver output, one encoded event a line, and text as a driver in Go may hand it over. What
// is accepted has to be writable, bounded, free of control characters, and accepted again unchanged.
func FuzzValidator(f *testing.F) {
	var all []string
	for _, d := range everyData {
		raw, err := Encode(Event{Data: d})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, string(raw))
	}
	for i := range all { // short seeds: long ones cost the fuzzer its time
		f.Add([]byte(strings.Join(all[max(0, i-2):i+1], "\n")), "text\xff\r\n{}", "m", uint16(1))
	}
	f.Add([]byte{}, "漢\x00\"", "t1", uint16(9000))
	f.Add([]byte{}, `{"a":"\ud800"}`, "t1", uint16(1))
	f.Fuzz(func(t *testing.T, lines []byte, unit, id string, times uint16) {
		text := unit
		if len(unit) < 64 {
			text = strings.Repeat(unit, int(times))
		}
		v, again := NewValidator(Bounds{}), NewValidator(Bounds{})
		events := []Event{{Data: RunStarted{Harness: "h"}}}
		for line := range strings.Lines(string(lines)) {
			if e, err := Decode([]byte(line)); err == nil {
				events = append(events, e)
			}
		}
		events = append(events,
			Event{Data: TextStarted{MessageID: id, Role: "assistant"}}, Event{Data: TextDelta{MessageID: id, Delta: text}},
			Event{Data: ToolStarted{ToolCallID: id, Name: text, Title: text, Arguments: json.RawMessage(text)}},
			Event{Data: ToolFinished{ToolCallID: id, Result: text}},
			Event{Data: Warning{Code: id, Message: text, Details: map[string]any{id: text}}},
			Event{Data: RunError{Code: "c", Message: text, Category: CategoryInternal}},
		)
		for _, e := range events {
			out, err := v.Accept(e)
			if err != nil {
				var invalid *InvalidError
				if !errors.As(err, &invalid) {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			for _, o := range out {
				raw, err := Encode(Event{Time: testTime, Namespace: o.Namespace, Data: o.Data})
				if err != nil || len(raw) > DefaultBounds().EventBytes {
					t.Fatalf("%d bytes, %v", len(raw), err)
				}
				if !isPlain(string(raw), "") {
					t.Fatalf("control characters in %q", raw)
				}
				back, err := Decode(raw)
				if err != nil {
					t.Fatalf("%v\n%s", err, raw)
				}
				twice, err := again.Accept(back)
				if err != nil || len(twice) != 1 {
					t.Fatalf("accepted once only: %v\n%s", err, raw)
				}
				if rawTwice, err := Encode(twice[0]); err != nil || string(rawTwice) != string(raw) {
					t.Fatalf("repaired twice: %v\n%s\n%s", err, raw, rawTwice)
				}
			}
		}
		if !v.Ended() {
			t.Fatal("run.error was refused")
		}
		if !sameState(v, again) {
			t.Fatal("the repaired stream leads to another state")
		}
	})
}
